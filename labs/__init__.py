"""The VLA Debugging Lab: small vision-language-action policies, each broken by exactly one documented bug."""
