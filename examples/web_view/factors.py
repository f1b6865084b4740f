"""A worker that factors numbers, for the web application in web_app.py.

    dragoman worker factors:worker

Run it in this folder, in any number of processes.
"""

from dragoman import Worker

worker = Worker("tcp://127.0.0.1:7400")


@worker.service("factors", codec="json")
def factors(number: int) -> list[int]:
    """Return the prime factors, smallest first. With codec="json", payload and result are objects, not bytes."""
    if number < 1:
        raise ValueError(f"{number} has no prime factors")
    found = []
    divisor = 2
    while divisor * divisor <= number:
        while number % divisor == 0:
            found.append(divisor)
            number //= divisor
        divisor += 1
    return [*found, number] if number > 1 else found
