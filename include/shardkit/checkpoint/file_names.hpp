// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <shardkit/checkpoint/json_reader.hpp>
#include <shardkit/detail/concat.hpp>
#include <shardkit/policy/placement_table.hpp>

namespace shardkit::detail {

inline constexpr std::string_view tensors_ending = ".safetensors";
inline constexpr std::string_view index_ending = ".safetensors.index.json";

/// A number with zeros in front, up to so many digits.
inline std::string padded(std::uint64_t number, std::size_t width) {
    const std::string digits = concat(number);
    return std::string(width - std::min(width, digits.size()), '0') + digits;
}

/// The name of one of several files that hold a model or a state: "model-00002-of-00003", without the ending.
struct NumberedName {
    std::string_view base;
    std::uint64_t number = 0;  ///< from 1
    std::uint64_t count = 0;

    static std::string of(std::string_view base, std::uint64_t number, std::uint64_t count) {
        return concat(base, "-", padded(number, 5), "-of-", padded(count, 5));
    }
    /// None for a name that `of` does not make.
    static std::optional<NumberedName> read(std::string_view name) {
        const auto number_behind = [&](std::string_view mark, std::uint64_t& value) {
            std::size_t digits = name.size();
            while (digits > 0 && name[digits - 1] >= '0' && name[digits - 1] <= '9') { --digits; }
            const std::size_t length = name.size() - digits;
            if (length < 5 || length > 18 || digits < mark.size() ||
                name.substr(digits - mark.size(), mark.size()) != mark) {
                return false;
            }
            for (const char c : name.substr(digits)) { value = 10 * value + static_cast<std::uint64_t>(c - '0'); }
            name = name.substr(0, digits - mark.size());
            return true;
        };
        NumberedName read;
        if (!number_behind("-of-", read.count) || !number_behind("-", read.number)) { return std::nullopt; }
        read.base = name;
        return read;
    }
};

/// The metadata of a checkpoint's file that is no model say under this which it is: "state/exp_avg".
inline constexpr std::string_view kind_key = "shardkit.kind";

/// The file that holds what is no group's: see StoredKind::file.
inline constexpr std::string_view scalars_file = "state/scalars";

/// Which of a group's buffers the tensors of a file are: its parameters, their masters, or an optimizer's state.
struct StoredKind {
    Role role{};             ///< parameters, master or states
    std::string_view state;  ///< its name, where it is one

    friend bool operator==(const StoredKind&, const StoredKind&) = default;

    /// The file within a step's folder, without its number among several and its ending: "model", "state/exp_avg".
    /// Different for different kinds that `has_file`.
    std::string file() const {
        return role == Role::parameters ? "model" : concat("state/", role == Role::master ? "master" : state);
    }
    /// What messages call a tensor: "w", "master of w", "exp_avg of w".
    std::string of(std::string_view tensor) const { return in_words(file(), tensor); }
    /// The same of a tensor in the file `file`.
    static std::string in_words(std::string_view file, std::string_view tensor) {
        if (file == "model" || file == scalars_file) { return std::string(tensor); }
        return concat(file.substr(file.rfind('/') + 1), " of ", tensor);
    }
    /// The state whose file `file` is; none where it is another's.
    static std::optional<std::string_view> state_of(std::string_view file) {
        constexpr std::string_view folder = "state/";
        if (!file.starts_with(folder) || file == scalars_file || file == StoredKind{Role::master, {}}.file()) {
            return std::nullopt;
        }
        return file.substr(folder.size());
    }
    /// Whether a file can be called after it, in its own folder and apart from every other kind's.
    bool has_file() const {
        if (role != Role::states) { return true; }
        constexpr std::size_t longest = 200;  // of 255, with a number and the ending
        return !state.empty() && state.size() <= longest && state.find('/') == std::string_view::npos &&
               state.find('\0') == std::string_view::npos && is_utf8(state) && state != "master" &&
               file() != scalars_file && !NumberedName::read(state);
    }
};

/// The file of a tensor's kind, without its number and ending: "state/exp_avg-00001-of-00002.safetensors" ->
/// "state/exp_avg".
inline std::string kind_of_file(std::string_view name) {
    if (name.ends_with(tensors_ending)) { name.remove_suffix(tensors_ending.size()); }
    const auto numbered = NumberedName::read(name);
    return std::string(numbered ? numbered->base : name);
}

}  // namespace shardkit::detail
