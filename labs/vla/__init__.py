"""The healthy vision-language-action policy; every lab is a broken copy of a part of it.

Read it in the direction in which the data flow:

    tabletop.py       the task: a table, blocks, a camera, an expert (gymnasium)
    language.py       instructions and their tokens
    dataset.py        demonstrations of the expert, and the conversion from arrays to a batch
    normalization.py  action statistics: from metres to the loss's units and back
    vision.py         pixels to features: SigLIP's tower, and the projector
    language_model.py Llama on embeddings, positions from the mask, rotary phases in float32
    heads.py          feature to action chunk: regression, tokens, flow matching
    policy.py         the whole policy, from pixels to action; `Policy.from_base()`
    training.py       `fit` and `overfit`
    rollout.py        the closed loop, batched; `ActionQueue`
    film.py           episodes as GIF or contact sheet; picture.py draws a scene for the viewer
    pretrain.py       makes base.safetensors by training on grounding only
    benchmark.py      measures the results that the labs rely on, and writes RESULTS.md
    randomness.py     a seeded block that leaves the caller's random state unchanged

A lab restates the one part that is broken and imports the rest: it subclasses `Policy` and overrides one method
(`build_head`, `embed_images`, `embed_state`, `join_prefix`, `run_language_model`, `loss`, `decode`), or passes
`loss_fn` to `fit` and `predict` to `rollout`.
"""
