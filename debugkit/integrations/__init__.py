"""debugkit in training frameworks and configuration libraries. Each module requires only its own library."""
