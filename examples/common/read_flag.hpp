// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <limits>
#include <string>

#include "flags.hpp"
#include "parse.hpp"

namespace program {

/// A flag's value into `target`, which stays as it is without the flag.
/// @throws InputError as the parse function
template <class Whole>
void read_count(const Flags& flags, const std::string& name, Whole& target, std::uint64_t least,
                std::uint64_t most = std::numeric_limits<std::uint64_t>::max()) {
    flags.use(name, [&](const std::string& flag, const std::string& given) {
        target = parse_count(flag, given, least, most);
    });
}
inline void read_file(const Flags& flags, const std::string& name, std::string& target) {
    flags.use(name, [&](const std::string& flag, const std::string& given) { target = parse_file(flag, given); });
}
/// Enum: an enumeration in the order of `names`, or bool with two of them.
template <class Enum, class Names>
void read_name(const Flags& flags, const std::string& name, const Names& names, Enum& target) {
    flags.use(name, [&](const std::string& flag, const std::string& given) {
        target = static_cast<Enum>(parse_name(flag, given, names));
    });
}

/// What reads a flag into `target` by a parse function, for Flags::add.
template <class Target, class Parse>
Read into(Target& target, Parse parse) {
    return [&target, parse](const std::string& flag, const std::string& given) { target = parse(flag, given); };
}
template <class Whole>
Read into_count(Whole& target, std::uint64_t least, std::uint64_t most = std::numeric_limits<std::uint64_t>::max()) {
    return [&target, least, most](const std::string& flag, const std::string& given) {
        target = parse_count(flag, given, least, most);
    };
}
/// Enum: as read_name.
template <class Enum, class Names>
Read into_name(Enum& target, const Names& names) {
    return [&](const std::string& flag, const std::string& given) {
        target = static_cast<Enum>(parse_name(flag, given, names));
    };
}

}  // namespace program
