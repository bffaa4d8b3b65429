"""The names of a composed program. Each is drawn from the seed, so that no two programs read alike."""

from __future__ import annotations

from random import Random

THEMES: tuple[tuple[str, str], ...] = (
    ("Drawer", "opens the drawer that the instruction names"),
    ("Kettle", "lifts the kettle and pours"),
    ("Cable", "plugs a cable into the named socket"),
    ("Peg", "puts a peg into the named hole"),
    ("Cup", "sets the named cup on the tray"),
    ("Lid", "screws the lid onto the named jar"),
    ("Towel", "folds the named towel"),
    ("Shelf", "places the named box on the shelf"),
    ("Tray", "pushes the tray to the named side"),
    ("Valve", "turns the named valve"),
    ("Bottle", "hands over the named bottle"),
    ("Brick", "stacks the named brick"),
)
"""The beginning of the class names, and what the robot does."""

_CLASSES: dict[str, tuple[str, ...]] = {
    "Policy": ("{}Policy", "{}Agent", "{}Model", "{}Actor"),
    "Config": ("{}Config", "ModelConfig", "{}Sizes", "PolicyConfig"),
    "Tower": ("ImageEncoder", "VisionTower", "CameraTower", "{}Vision"),
    "Block": ("Block", "TransformerBlock", "EncoderLayer"),
    "Text": ("InstructionEncoder", "TextEncoder", "LanguageTower", "{}Language"),
    "Fusion": ("Fusion", "Mixer", "Merge", "Conditioning"),
    "Head": ("ActionHead", "ChunkHead", "{}Head", "ActionDecoder"),
    "Scaler": ("ActionScaler", "ActionStatistics", "Normalizer", "UnitScale"),
    "Runner": ("Runner", "ChunkRunner", "{}Server", "RobotSide"),
    "Trainer": ("Trainer", "{}Trainer", "Training", "Run"),
    "Recipe": ("Recipe", "TrainConfig", "{}Recipe", "TrainSettings"),
    "Windows": ("Windows", "ChunkDataset", "{}Data", "Frames"),
}
_WORDS: dict[str, tuple[str, ...]] = {
    # Functions.
    "prepare_image": ("prepare_image", "to_pixels", "preprocess", "pixel_values"),
    "tokenize": ("tokenize", "encode_text", "to_ids", "tokens_of"),
    "pieces_of": ("pieces_of", "split_into_pieces", "piece_ids", "segment"),
    "fit_scaler": ("fit_scaler", "statistics_of", "measure_actions", "scale_of"),
    "make_optimizer": ("make_optimizer", "build_optimizer", "optimizer_for", "configure_optimizer"),
    "make_scheduler": ("make_scheduler", "build_scheduler", "schedule_for", "warmup_and_decay"),
    "evaluate": ("evaluate", "validate", "validation_loss", "held_out_loss"),
    "split": ("split", "split_episodes", "hold_out", "train_and_validation"),
    "epoch_order": ("epoch_order", "shuffled", "order_of_epoch", "visit_order"),
    "rank_share": ("rank_share", "indices_of_rank", "shard", "part_of_rank"),
    "combine": ("combine", "mean_over_ranks", "reduce_loss", "global_mean"),
    "read_recipe": ("read_recipe", "load_recipe", "recipe_from", "resolve"),
    "convert": ("convert", "parse", "as_type_of", "cast"),
    # Attributes of the policy.
    "vision": ("vision", "camera", "tower", "image_encoder"),
    "language": ("language", "instruction", "text", "words"),
    "proprio": ("proprio", "joints", "state_layer", "body"),
    "fusion": ("fusion", "merge", "mixer", "trunk"),
    "head": ("head", "action_head", "decoder", "chunk_head"),
    "scaler": ("scaler", "statistics", "units", "action_scale"),
    # Local variables.
    "seen": ("seen", "image_feature", "view", "pixels"),
    "told": ("told", "text_feature", "goal", "request"),
    "felt": ("felt", "state_feature", "pose", "posture"),
    "keep": ("keep", "valid", "counts", "inside"),
    "error": ("error", "distance", "deviation", "miss"),
    "words": ("words", "tokens", "embedded", "embeddings"),
    "chunk": ("chunk", "actions", "plan", "window"),
    # Fields of the configuration.
    "width": ("width", "hidden_size", "d_model", "dim"),
    "horizon": ("horizon", "chunk_size", "steps_ahead", "chunk_length"),
    "dropout": ("dropout", "drop_rate", "p_drop"),
    "rate": ("learning_rate", "lr", "peak_lr", "base_lr"),
    "decay": ("weight_decay", "decay", "l2"),
    "warmup": ("warmup_steps", "warmup", "ramp_steps"),
    "max_norm": ("max_norm", "clip_norm", "grad_clip"),
    "steps": ("total_steps", "max_steps", "num_steps"),
    "queue": ("queue", "pending", "planned", "buffer"),
}


def draw_names(random: Random) -> dict[str, str]:
    """The name of every class, function, attribute and variable of one program. No name occurs twice in a scope."""
    theme, task = random.choice(THEMES)
    names = {"theme": theme, "Task": task[0].upper() + task[1:], "robot": theme.lower()}
    taken: set[str] = set()
    for key, options in {**_CLASSES, **_WORDS}.items():
        free = [one.format(theme) for one in options if one.format(theme) not in taken]
        names[key] = random.choice(free)
        taken.add(names[key])
    return names
