"""What programs in a guest see of its clock."""
