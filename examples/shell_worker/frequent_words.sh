#!/bin/sh
# A shell script as a worker: the three most frequent words of a text.
#
#     dragoman worker --exec "sh frequent_words.sh" --service words --connect tcp://127.0.0.1:7400
#     dragoman call words "the cat and the dog and the bird" --connect tcp://127.0.0.1:7400
#
# The first in this folder, the second in another terminal. Any program will do: it is started once for each job, gets the
# payload on its standard input, and what it prints is the result. A long text is sent with `dragoman call words - < FILE`.
set -eu
export LC_ALL=C

words=$(tr -cs 'A-Za-z' '\n' | tr 'A-Z' 'a-z' | grep .) || {
    # Another exit code than 0 is a failure, and what was said on standard error is its reason.
    echo "there are no words in it" >&2
    exit 1
}
echo "$words" | sort | uniq -c | sort -k1,1nr -k2 | head -n 3
