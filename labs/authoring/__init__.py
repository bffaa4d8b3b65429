"""The tools for authors of labs: new, verify, show, store, figures."""
