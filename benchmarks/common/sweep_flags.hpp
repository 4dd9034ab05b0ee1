// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "../../examples/common/flags.hpp"
#include "../../examples/common/parse.hpp"
#include "sweep.hpp"

namespace benchmarks {

/// Of a sweep: more are a mistake in --stepbytes.
inline constexpr std::uint64_t most_sizes = 100'000;

/// The flags of a Sweep, with what `bytes` are in the program's help, and the sizes that it has without them.
struct SweepFlags {
    std::string bytes;
    std::uint64_t min_bytes;
    std::uint64_t max_bytes;
    std::uint64_t step_factor;

    void add(program::Flags& flags) const;
    /// @throws InputError that names flag, value and expectation
    void read(const program::Flags& flags, Sweep& sweep) const;
};

/// A flag's list of names, as values of an enumeration.
template <class Enum, class Names>
void read_names(const program::Flags& flags, const std::string& name, const Names& names, std::vector<Enum>& chosen) {
    flags.use(name, [&](const std::string& flag, const std::string& given) {
        chosen.clear();
        for (const std::size_t i : program::parse_names(flag, given, names)) {
            chosen.push_back(static_cast<Enum>(i));
        }
    });
}

}  // namespace benchmarks
