#!/bin/sh
# users.sh USERS ROUNDS: so many users at once, who develop programs below /mnt. users.calls is a recording of it:
#   chronodisk trace record --mount /mnt --fold -o users.calls -- sh users.sh 20 24 < /dev/null > users.log 2>&1
here=$(cd "$(dirname "$0")" && pwd)
# With another locale each program looks for dozens of files first.
export LC_ALL=C
u=1
while [ $u -le "$1" ]; do
    sh "$here/user.sh" $u "$2" "$here/program.c" &
    u=$((u + 1))
done
wait
