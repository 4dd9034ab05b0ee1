// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "../../examples/common/flags.hpp"
#include "../../examples/common/parse.hpp"
#include "measure.hpp"

namespace benchmarks {

/// What every program that times calls over sizes is told.
struct Sweep : Repeats {
    std::uint64_t min_bytes = 0;
    std::uint64_t max_bytes = 0;
    std::uint64_t step_factor = 2;
    std::uint64_t step_bytes = 0;  ///< between sizes, in place of the factor; 0: not given
    bool pin = false;
    std::string json;  ///< file name; empty: not asked for

    std::uint64_t size_after(std::uint64_t bytes) const noexcept {
        return step_bytes > 0 ? bytes + step_bytes : bytes * step_factor;
    }
    std::uint64_t largest_size() const noexcept {
        std::uint64_t bytes = min_bytes;
        while (size_after(bytes) <= max_bytes) { bytes = size_after(bytes); }
        return bytes;
    }
};

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
