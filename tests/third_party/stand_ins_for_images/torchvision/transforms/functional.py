"""Empty: the scripts import it for images, and their data have none."""
