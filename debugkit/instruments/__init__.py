"""The instruments: small tools that work alone, one file each. All are imported from `debugkit`."""
