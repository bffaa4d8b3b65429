"""The healthy policy: the vision-language-action model every lab is a broken copy of.

Read it in the direction the data flows:

    tabletop.py       the task: a table, blocks, a camera, an expert (gymnasium)
    language.py       instructions and their tokens
    dataset.py        demonstrations of the expert, and the way from arrays to a batch
    normalization.py  action statistics: metres to the loss's units and back
    vision.py         pixels to features: SigLIP's tower, and the projector
    language_model.py Llama on embeddings, positions from the mask, rotary phases in float32
    heads.py          feature to action chunk: regression, tokens, flow matching
    policy.py         all of it, from pixels to action; `Policy.from_base()`
    training.py       `fit` and `overfit`
    rollout.py        the closed loop, batched; `ActionQueue`
    film.py           episodes as GIF or contact sheet; picture.py draws a scene for a person
    pretrain.py       makes base.safetensors, on grounding alone
    benchmark.py      measures what the labs rely on, and writes RESULTS.md
    randomness.py     seeded inside, untouched outside

A lab restates the one part that is broken and imports the rest: subclass `Policy` and override one method
(`build_head`, `embed_images`, `embed_state`, `join_prefix`, `run_language_model`, `loss`, `decode`), or pass
`loss_fn` to `fit` and `predict` to `rollout`.
"""
