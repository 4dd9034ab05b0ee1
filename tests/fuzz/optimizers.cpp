// SPDX-License-Identifier: Apache-2.0
// optimizers [CASES] [FIRST SEED]: random optimizers with options at their edges, see optimizers.hpp and run.
#include "optimizers.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <string>

int main(int count, char** arguments) {
    const std::uint64_t cases = count > 1 ? std::stoull(arguments[1]) : 100'000;
    const std::uint64_t first = count > 2 ? std::stoull(arguments[2]) : 0;
    std::array<std::uint64_t, 2> outcomes{};
    std::uint64_t failed = 0;
    for (std::uint64_t seed = first; seed < first + cases; ++seed) {
        try {
            ++outcomes[static_cast<std::size_t>(optimizers::run(seed))];
        } catch (const std::exception& error) {
            std::printf("seed %llu: %s\n", static_cast<unsigned long long>(seed), error.what());
            ++failed;
        }
    }
    std::printf("%llu cases: %llu stepped, %llu refused, %llu failed\n", static_cast<unsigned long long>(cases),
                static_cast<unsigned long long>(outcomes[1]), static_cast<unsigned long long>(outcomes[0]),
                static_cast<unsigned long long>(failed));
    return failed == 0 && outcomes[1] > cases / 10 && outcomes[0] > cases / 10 ? 0 : 1;
}
