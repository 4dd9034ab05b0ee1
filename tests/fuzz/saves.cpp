// SPDX-License-Identifier: Apache-2.0
// saves [CASES] [FIRST SEED]: random states are saved and loaded again, see saves.hpp and run.
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <string>

#include "saves.hpp"
#include "temporary_folder.hpp"

int main(int count, char** arguments) {
    const std::uint64_t cases = count > 1 ? std::stoull(arguments[1]) : 100'000;
    const std::uint64_t first = count > 2 ? std::stoull(arguments[2]) : 0;
    std::array<std::uint64_t, 3> outcomes{};
    std::uint64_t failed = 0;
    for (std::uint64_t seed = first; seed < first + cases; ++seed) {
        const temporary_folder::Folder folder;
        try {
            ++outcomes[static_cast<std::size_t>(saves::run(seed, folder.path()))];
        } catch (const std::exception& error) {
            std::printf("seed %llu: %s\n", static_cast<unsigned long long>(seed), error.what());
            ++failed;
        }
    }
    std::printf("%llu cases: %llu loaded as they were saved, %llu refused, %llu no state, %llu failed\n",
                static_cast<unsigned long long>(cases), static_cast<unsigned long long>(outcomes[2]),
                static_cast<unsigned long long>(outcomes[1]), static_cast<unsigned long long>(outcomes[0]),
                static_cast<unsigned long long>(failed));
    return failed == 0 && outcomes[2] > cases / 4 && outcomes[1] > cases / 20 ? 0 : 1;
}
