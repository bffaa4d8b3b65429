"""Shapes, dtypes, devices, indices."""

from __future__ import annotations

from functools import partial

from injection.operators import operator

fault = partial(operator, "shapes")
_FIRST = r"conv|embed|stem|backbone|vision|encoder|patch|fc1|rnn|layers|^0$"
_FLOATS = ("classify images", "segment images", "classify sound", "forecast", "regress a table", "classify a table")
_FLOATS += ("regress a graph", "policy", "reconstruct", "denoise", "metric", "reinforcement")
_TABLE = r"embed|words|positions|users|items"

fault(
    "head_for_another_width",
    "DK001",
    "a linear layer is built for another input width than it gets",
    [(r"nn\.Linear\(((?!COLUMNS)[\w* ]+), ", r"nn.Linear(\1 + 4, ")],
    modules=r"(^|\.)\d+$",
)
fault(
    "channels_last",
    "DK001",
    "pictures are given as (height, width, channels)",
    [
        (
            r'^        return \{"(image|pixel_values)": image',
            r'        image = image.permute(1, 2, 0)\n        return {"\1": image',
        )
    ],
    [(r'^        frame\["image"\] = image', r'        frame["image"] = image.permute(1, 2, 0)')],
    modules=_FIRST,
)
fault(
    "norm_for_another_width",
    "DK001",
    "a norm is built for another width than its input has",
    [(r"nn\.(LayerNorm|BatchNorm1d)\((\w+)\)", r"nn.\1(2 * \2)")],
    [(r"nn\.BatchNorm2d\((\w+)\)", r"nn.BatchNorm2d(2 * \1)")],
)
fault(
    "concatenated_along_the_batch",
    "DK001 DK305",
    "tensors are joined along the wrong dimension",
    [(r"(torch\.cat\(\[.*\], dim=)(-?1)\)", r"\g<1>0)")],
)
fault(
    "flattened_with_the_batch",
    "DK001",
    "the batch dimension is flattened, too",
    [(r"\.flatten\(1\)", r".flatten()")],
)
fault(
    "fixed_batch_size",
    "DK001",
    "a reshape has the batch size written into it, and the last batch is smaller",
    [(r"\.flatten\(1\)", r".view(BATCH, -1)")],
    [(r"\.view\(-1, ", r".view(BATCH, ")],
)
fault(
    "prediction_not_squeezed",
    "DK002",
    "predictions (B, 1) are compared with targets (B,)",
    [(r"model\((.*)\)\.squeeze\(-1\)$", r"model(\1)")],
    [(r"self\.critic\(x\)\.squeeze\(-1\)", r"self.critic(x)")],
    [(r"self\.head\(x\)\.squeeze\(-1\)", r"self.head(x)")],
)
fault(
    "target_with_one_dimension_more",
    "DK002",
    "targets are stored as a column, and predictions are flat",
    [(r'"(target|rating|reward)": self\.(target|rating|reward)\[index\]', r'"\1": self.\2[index][None]')],
    [(r"^        self\.reward = (.*)$", r"        self.reward = (\1)[:, None]")],
)
fault(
    "weights_averaged_without_keepdim",
    "DK001 DK002",
    "a sum that should keep its dimension drops it",
    [(r", keepdim=True\)", r")")],
)
fault(
    "transposed_by_reshape",
    "",
    "a reshape is used where the dimensions should be transposed",
    [(r"\.flatten\(2\)\.transpose\(1, 2\)", r".flatten(1).unflatten(1, (16, -1))")],
    [(r"\(weights @ v\)\.transpose\(1, 2\)\.reshape", r"(weights @ v).reshape")],
    [(r"past\.transpose\(1, 2\)", r"past.reshape(len(past), CHANNELS, PAST)")],
)
fault(
    "tensor_made_on_the_cpu",
    "DK003",
    "forward or the loss creates a tensor without a device",
    [(r"(torch\.(?:arange|ones|rand|full|randint|linspace|logspace)\(.*), device=[\w.]+", r"\1")],
    [(r"torch\.randn_like\((\w+)\)", r"torch.randn(\1.shape)")],
    where="device",
)
fault(
    "entry_not_moved",
    "DK003",
    "one entry of the batch is not moved to the device",
    [(r'(batch\["\w+"\])\.to\(device\)', r"\1")],
    [
        (
            r"^    batch = \{name: value\.to\(device\) .*$",
            r"    batch = {name: value.to(device) if value.is_floating_point() else value for name, value in batch.items()}",
        )
    ],
    where="device",
)
fault(
    "buffer_as_plain_attribute",
    "DK003 DK005",
    "a tensor of the module is a plain attribute, not a buffer",
    [(r'self\.register_buffer\("(\w+)", (.*)\)$', r"self.\1 = \2")],
    [(r"self\.window = nn\.Parameter\((.*), requires_grad=False\)", r"self.window = \1")],
)
fault(
    "double_precision_inputs",
    "DK004",
    "the data are float64, as NumPy makes them",
    [(r"^        image = (self\.pixels\[index\].*)$", r"        image = (\1).double()")],
    [(r'"(inputs|nodes|state|past_values)": ([\w.\[\]:]+)', r'"\1": \2.double()')],
    [(r"^        sound = self\.sound\[index\]", r"        sound = self.sound[index].double()")],
    modules=_FIRST,
)
fault(
    "double_precision_targets",
    "DK004",
    "the targets are float64",
    [(r'"(target|rating|future_values|reward)": ([\w.\[\]:]+)', r'"\1": \2.double()')],
    tasks=("regress a table", "regress a graph", "regress ratings", "forecast", "reinforcement"),
)
fault(
    "ids_as_floats",
    "DK004",
    "token ids or labels are converted to floating point with the rest of the batch",
    [(r'"input_ids": input_ids', r'"input_ids": input_ids.float()')],
    [(r'"(label|user|item)": self\.(\w+)\[index\]', r'"\1": self.\2[index].float()')],
    modules=_TABLE,
)
fault(
    "token_beyond_the_vocabulary",
    "DK006",
    "a special token was added and the embedding was not resized",
    [
        (
            r"^    input_ids, attention_mask = padded\(rows\)$",
            r"\g<0>\n    input_ids[:, 0] = VOCABULARY",
        )
    ],
    [(r"^        self\.ids = 3 \+ \(", r"        self.ids = 4 + (")],
    modules=_TABLE,
)
fault(
    "classes_counted_from_one",
    "DK006",
    "labels begin with 1",
    [(r'"(labels?)": self\.label\[index\]', r'"\1": self.label[index] + 1')],
    [(r'"label": self\.step\[index\] - 1', r'"label": self.step[index]')],
)
fault(
    "positions_too_few",
    "DK006 DK001",
    "there are fewer position embeddings than positions",
    [(r"max_position_embeddings=(32|64|16)", r"max_position_embeddings=8")],
    [(r"nn\.Embedding\(LENGTH, width\)", r"nn.Embedding(LENGTH // 2, width)")],
    [(r"n_positions=32", r"n_positions=8")],
    modules=_TABLE,
)
fault(
    "placeholders_off_by_one",
    "DK007",
    "the prompt has one image placeholder more than the tower has features",
    [(r"\(len\(action\), 4\), IMAGE_TOKEN", r"(len(action), 5), IMAGE_TOKEN")],
)
fault(
    "model_in_half_precision",
    "DK004",
    "a part of the model is converted to bfloat16, and its inputs are not",
    [(r"^model = build_model\(\)\.to\(device\)$", r"model = build_model().to(device).bfloat16()")],
    tasks=_FLOATS,
)
fault(
    "result_not_assigned",
    "DK008 DK106",
    "the result of a module is not assigned",
    [(r"^(\s+)\w+ = (self\.(?:dropout|norm)\(\w+\))$", r"\1\2")],
    [(r"^(\s+)(?:x|memory|patches) = (\w+ \+ self\.\w+\(.*\))$", r"\1\2")],
    [(r"^(\s+)patches = (patches \+ self\.positions)$", r"\1\2")],
)
