"""What an author of labs uses: verify, new, figures."""
