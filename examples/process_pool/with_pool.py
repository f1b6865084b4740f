"""Digit sums of factorials. README.md has the commands and the differences."""

from concurrent.futures import ProcessPoolExecutor

from digits import digit_sum

if __name__ == "__main__":
    with ProcessPoolExecutor() as pool:
        for number, result in zip(range(10), pool.map(digit_sum, range(10)), strict=True):
            print(number, result)
        print(pool.submit(digit_sum, 1000).result())
