#!/bin/sh
# A shell script as a worker: the three most frequent words of a text.
#
#     dragoman worker --exec "sh frequent_words.sh" --service words --connect tcp://127.0.0.1:7400
#     dragoman call words "the cat and the dog and the bird" --connect tcp://127.0.0.1:7400
#
# Run the first command in this folder, the second in another terminal. Any program works: it is started once for each
# job, reads the payload from standard input, and prints the result. For a long text: `dragoman call words - < FILE`.
set -eu
export LC_ALL=C

words=$(tr -cs 'A-Za-z' '\n' | tr 'A-Z' 'a-z' | grep .) || {
    # Any exit code but 0 is a failure, and standard error is its reason.
    echo "the text has no words" >&2
    exit 1
}
echo "$words" | sort | uniq -c | sort -k1,1nr -k2 | head -n 3
