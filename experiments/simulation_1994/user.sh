#!/bin/sh
# user.sh NUMBER ROUNDS SOURCE: a user who edits, compiles, and works with directories and files below /mnt/uNUMBER.
user=$1 rounds=$2 source=$3
home=/mnt/u$user
# Users who begin at the same instant all write first, and then all compile.
sleep "$(((user - 1) * 6 / 10)).$(((user - 1) * 6 % 10))"
mkdir -p "$home/src" "$home/doc"
cd "$home/src" || exit
for file in 1 2 3 4; do
    sed "s/compute/compute_${user}_$file/g" "$source" >f$file.c
done
round=0
while [ $round -lt "$rounds" ]; do
    round=$((round + 1))
    file=$((1 + (user + round) % 4))
    # Edit.
    sed "s/x + [0-9]*/x + $round/" f$file.c >f$file.c.new && mv f$file.c.new f$file.c
    cp f$file.c f$file.c~
    # Compile.
    cc -O1 -c f$file.c -o f$file.o
    # Directories and files.
    mkdir ../doc/v$round
    for copied in 1 2 3; do cp f$copied.c ../doc/v$round/; done
    ls -l .. ../doc >../list
    cat ../doc/v$round/* >../all
    wc -l ../all >../count
    if [ $round -gt 1 ]; then rm -r ../doc/v$((round - 1)); fi
done
