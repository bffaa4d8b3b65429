"""Lesson 06's measurement, run on the lab as shipped."""

import sys

from labs.grading.catalog import find

sys.path.insert(0, str(find("06").folder))  # as in the workspace, where the file is in the current folder
sys.modules.pop("policy", None)

# --8<-- [start:measure]
from policy import IMAGE_ID, encode_prompts

print("words   one camera   two cameras")
for words in (3, 5, 7, 8, 9, 12, 24):
    instruction = "go to red" + " now" * (words - 3)
    places = []
    for cameras in (1, 2):
        ids, mask = encode_prompts([instruction], cameras)
        places.append(int((ids == IMAGE_ID).sum()))
    print(f"{words:5d}   {places[0]:10d}   {places[1]:11d}")
# --8<-- [end:measure]
assert places == [16, 16]
sys.path.pop(0)
