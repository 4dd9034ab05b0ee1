// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <string>

#include "temporary_folder.hpp"

/// The programs of cases by their seeds.
namespace count_cases {

/// Runs [CASES] of them from [FIRST SEED] on, each in a folder of its own, and counts what became of them.
/// @param outcomes  what each outcome is called; the last two must be common  @returns the program's status
template <std::size_t N, class Run>
int run(int count, char** arguments, const Run& run, const std::array<const char*, N>& outcomes) {
    const std::uint64_t cases = count > 1 ? std::stoull(arguments[1]) : 100'000;
    const std::uint64_t first = count > 2 ? std::stoull(arguments[2]) : 0;
    std::array<std::uint64_t, N> counts{};
    std::uint64_t failed = 0;
    for (std::uint64_t seed = first; seed < first + cases; ++seed) {
        const temporary_folder::Folder folder;
        try {
            ++counts[static_cast<std::size_t>(run(seed, folder.path()))];
        } catch (const std::exception& error) {
            std::printf("seed %llu: %s\n", static_cast<unsigned long long>(seed), error.what());
            ++failed;
        }
    }
    std::printf("%llu cases: ", static_cast<unsigned long long>(cases));
    for (std::size_t i = N; i-- > 0;) {
        std::printf("%llu %s, ", static_cast<unsigned long long>(counts[i]), outcomes[i]);
    }
    std::printf("%llu failed\n", static_cast<unsigned long long>(failed));
    return failed == 0 && counts[N - 1] > cases / 4 && counts[N - 2] > cases / 20 ? 0 : 1;
}

}  // namespace count_cases
