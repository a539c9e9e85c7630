"""Arrays of disks under failure."""
