# SPDX-License-Identifier: Apache-2.0
"""torch_products.py: makes matrix products with torch.mm and torch.addmm on one thread and one processor; its commands are
those of blas_products.cpp, which says what they mean."""
import re
import time

from torch_worker import pin_to, serve


def main():
    pin_to(0)
    import torch  # after pinning: its threads are bound as this process is
    torch.set_num_threads(1)
    products = []
    sizes = [0, 0, 0]
    buffers = []

    def product(*words):
        m, n, k, left, right, adds, count = map(int, words)
        products.append((m, n, k, left, right, adds, count))
        sizes[:] = [max(pair) for pair in zip(sizes, (m * k, k * n, m * n))]
        buffers.clear()
        return {}

    def operand(number, rows, columns, transposed):
        flat = buffers[number][:rows * columns]
        return flat.view(columns, rows).t() if transposed else flat.view(rows, columns)

    def views():
        """Each product's operands and result, whether it is added, and how often it is made; results are zero."""
        if not buffers:
            for size, step, values in ((sizes[0], 7, 5), (sizes[1], 11, 7)):
                buffers.append(torch.arange(size, dtype=torch.int64).mul_(step).remainder_(values).sub_(values // 2)
                               .to(torch.float32))
            buffers.append(torch.empty(sizes[2]))
        buffers[2].zero_()
        return [(operand(0, m, k, left), operand(1, k, n, right), operand(2, m, n, 0), adds, count)
                for m, n, k, left, right, adds, count in products]

    def make(left, right, result, adds):
        if adds:
            torch.addmm(result, left, right, out=result)
        else:
            torch.mm(left, right, out=result)

    def check():
        sums = []
        for left, right, result, adds, _ in views():
            buffers[2].zero_()
            make(left, right, result, adds)
            flat = result.reshape(-1).to(torch.float64)
            sums.append((flat * (torch.arange(flat.numel()).remainder_(13) + 1)).sum().item())
        return {"sums": sums}

    def go():
        all_of_them = views()
        begin = time.perf_counter()
        for left, right, result, adds, count in all_of_them:
            for _ in range(count):
                make(left, right, result, adds)
        return {"seconds": time.perf_counter() - begin}

    made_with = re.search(r"BLAS_INFO=(\w+)", torch.__config__.show())
    serve({"torch": torch.__version__, "threads": torch.get_num_threads(), "pinned": True, "blas": made_with[1] if made_with else "unknown",
           "flags": "torch.mm, torch.addmm", "cpu_capability": torch.backends.cpu.get_cpu_capability()},
          {"product": product, "check": check, "go": go})


main()
