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
#include <shardkit/spi/placement.hpp>

namespace shardkit::detail {

inline constexpr std::string_view tensors_ending = ".safetensors";
inline constexpr std::string_view index_ending = ".safetensors.index.json";

/// Returns a number with leading zeros, of at least `width` digits.
inline std::string padded(std::uint64_t number, std::size_t width) {
    const std::string digits = concat(number);
    return std::string(width - std::min(width, digits.size()), '0') + digits;
}

/// The name of one of several files of a model or a state, without its ending: "model-00002-of-00003".
struct NumberedName {
    std::string_view base;
    std::uint64_t number = 0;  ///< from 1
    std::uint64_t count = 0;

    static std::string of(std::string_view base, std::uint64_t number, std::uint64_t count) {
        return concat(base, "-", padded(number, 5), "-of-", padded(count, 5));
    }
    /// Parses a name; returns none if `of` does not make such a name.
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

/// The metadata key under which a checkpoint's file names its kind, unless it is a model: "state/exp_avg".
inline constexpr std::string_view kind_key = "shardkit.kind";
/// The metadata key of the rule whose states a file holds, "AdamW"; and what precedes the name of a tensor that is
/// another rule's, in its key.
inline constexpr std::string_view rule_key = "shardkit.rule";
inline constexpr std::string_view rule_mark = "rule:";
/// Precedes the name of a tensor of codes, in the metadata's key of the codes' scale.
inline constexpr std::string_view scale_mark = "scale:";

/// The kind of the file with everything that belongs to no group; see StoredKind::file.
inline constexpr std::string_view scalars_file = "state/scalars";

/// What a state's scales are called, behind the state's name: powers of two, see Block8. The scales of codes of
/// another format have another name, so that none is read for the other's: ".scales" were those of roots.
inline constexpr std::string_view scales_ending = ".powers";

/// The buffer that the tensors of a file come from: the parameters, their master weights, or an optimizer state.
struct StoredKind {
    Role role{};             ///< parameters, master or states
    std::string_view state;  ///< name of the state for Role::states, else empty
    bool scales = false;     ///< the scales of a state in blocks of 8 bits, whose codes are a kind of their own

    friend bool operator==(const StoredKind&, const StoredKind&) = default;

    /// Returns the file's path in the step's folder, without a number among several and the ending: "model",
    /// "state/exp_avg". Kinds that `has_file` have different files.
    std::string file() const {
        return role == Role::parameters
                   ? "model"
                   : concat("state/", role == Role::master ? "master" : state, scales ? scales_ending : "");
    }
    /// Returns a tensor's name in messages: "w", "master of w", "exp_avg of w".
    std::string of(std::string_view tensor) const { return in_words(file(), tensor); }
    /// Returns a tensor's name in messages, for a tensor of file `file`.
    static std::string in_words(std::string_view file, std::string_view tensor) {
        if (file == "model" || file == scalars_file) { return std::string(tensor); }
        return concat(file.substr(file.rfind('/') + 1), " of ", tensor);
    }
    /// Returns the state whose file is `file`, or none if it is the file of another kind.
    static std::optional<std::string_view> state_of(std::string_view file) {
        constexpr std::string_view folder = "state/";
        if (!file.starts_with(folder) || file == scalars_file || file == StoredKind{Role::master, {}}.file()) {
            return std::nullopt;
        }
        return file.substr(folder.size());
    }
    /// Returns whether the kind's name makes a valid file name, in its folder and different from all other kinds'.
    bool has_file() const {
        if (role != Role::states) { return true; }
        constexpr std::size_t longest = 200;  // of 255, to leave room for a number and the ending
        return !state.empty() && state.size() <= longest && state.find('/') == std::string_view::npos &&
               state.find('\0') == std::string_view::npos && is_utf8(state) && state != "master" &&
               !state.ends_with(scales_ending) && file() != scalars_file && !NumberedName::read(state);
    }
};

/// Returns the kind of a file's tensors, without its number and ending: "state/exp_avg-00001-of-00002.safetensors" ->
/// "state/exp_avg".
inline std::string kind_of_file(std::string_view name) {
    if (name.ends_with(tensors_ending)) { name.remove_suffix(tensors_ending.size()); }
    const auto numbered = NumberedName::read(name);
    return std::string(numbered ? numbered->base : name);
}

}  // namespace shardkit::detail
