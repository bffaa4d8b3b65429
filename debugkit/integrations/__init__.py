"""debugkit inside other people's loops and configurations: one module a library, each needing that library alone."""
