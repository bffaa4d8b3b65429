"""Programs in the manner of other people's code, correct and with faults, and what debugkit says of them."""
