"""The small tools a person calls alone, one file each."""
