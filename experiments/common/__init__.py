"""What the experiments share: calling the command, and plotting."""
