"""What `debugkit.watch` is made of: values kept on the device, the step's timeline, its replay, its snapshot."""
