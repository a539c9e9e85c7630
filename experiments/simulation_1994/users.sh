#!/bin/sh
# users.sh USERS ROUNDS: so many users at once, who develop programs below /mnt.
here=$(dirname "$0")
u=1
while [ $u -le "$1" ]; do
    sh "$here/user.sh" $u "$2" "$here/program.c" &
    u=$((u + 1))
done
wait
