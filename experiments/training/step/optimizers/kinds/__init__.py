"""The kinds of optimizers, one file each, with a function `build(model, config, precision)`."""
