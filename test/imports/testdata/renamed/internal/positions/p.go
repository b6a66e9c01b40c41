package positions
