"""Digit sums of factorials. README.md has the commands and the differences."""

from dragoman import Client

from digits import digit_sum

if __name__ == "__main__":
    client = Client("tcp://127.0.0.1:7400")
    with client, client.executor("python", codec="pickle") as pool:
        for number, result in zip(range(10), pool.map(digit_sum, range(10)), strict=True):
            print(number, result)
        print(pool.submit(digit_sum, 1000).result())
