// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <shardkit/checkpoint/checkpoint_files.hpp>
#include <shardkit/checkpoint/crc32c.hpp>
#include <shardkit/checkpoint/file_names.hpp>
#include <shardkit/checkpoint/read_header.hpp>
#include <shardkit/checkpoint/safetensors.hpp>
#include <shardkit/checkpoint/state_to_save_or_load.hpp>
#include <shardkit/core/error.hpp>
#include <shardkit/detail/concat.hpp>
#include <shardkit/detail/list.hpp>
#include <shardkit/detail/range.hpp>
#include <shardkit/spi/placement.hpp>

namespace shardkit::detail {

/// "an optimizer that keeps exp_avg, exp_avg_sq, as AdamW"
inline std::string optimizer_in_words(const std::set<std::string>& states, const std::set<std::string>& rules) {
    if (states.empty()) { return "no optimizer, or one that keeps no states"; }
    std::string text = "an optimizer that keeps";
    const auto list = [&](const std::set<std::string>& names, std::string_view before) {
        for (const std::string& name : names) {
            append(text, before, name);
            before = ", ";
        }
    };
    list(states, " ");
    list(rules, ", as ");
    return text;
}

/// The beginning of what is said of files whose optimizer is not another one.
inline constexpr std::string_view no_other_optimizer = "it ";

/// Says that a checkpoint was saved with another optimizer than it is loaded into, by the states that each keeps, and
/// what to do. The returned text ends with the subject of the sentence that follows: "it".
template <class Files, class SavedGroups>
std::string other_optimizer(Files& files, const SavedGroups& groups) {
    std::set<std::string> saved, saved_by, here, here_by;
    for (const auto& stored : files.tensors()) {
        const auto state = StoredKind::state_of(files.kind(stored));
        if (state && !state->ends_with(scales_ending)) { saved.emplace(*state); }
        if (!stored.rule.empty()) { saved_by.insert(stored.rule); }
    }
    for (const auto& group : groups) {
        for (const auto& values : group->values) {
            if (!has(values->of, 1) || values->kind.role != Role::states) { continue; }
            here.emplace(values->kind.state);
            here_by.emplace(values->rule);
        }
    }
    const std::string its = optimizer_in_words(saved, saved_by);
    const std::string ours = optimizer_in_words(here, here_by);
    if (its == ours) { return std::string(no_other_optimizer); }
    return concat("was saved with ", its, ", and is loaded into ", ours,
                  ": checkpoint::LoadOptions::states = false loads the parameters alone. It ");
}

/// Finds a state's numbers and blobs in a checkpoint's scalars file.
class FindNumbers {
  public:
    /// The tensors from which a parameter's states are loaded; of one without states, those of the parameter itself.
    struct From {
        List<std::string> names;
        bool states = false;
        std::size_t values = 0;    ///< index of the group's values that they are, the first ones loaded
        bool plain = true;         ///< the elements are in the parameter's own order
        std::size_t elements = 0;  ///< how many of the parameter's elements they have: the first ones
    };
    /// Indexed by the numbers of the group and of the parameter.
    using Tensors = List<List<From>>;
    /// The user's bytes, and where they go.
    struct Blob {
        std::vector<std::uint8_t>* to = nullptr;
        std::vector<std::uint8_t> bytes;
    };

    FindNumbers(CheckpointFiles& files, SourceLocation where) : files_(files), where_(where) {}

    /// Replaces the numbers of `state` that the files have; the names of the others are appended to `left`. A
    /// parameter takes the step counts of the tensors that are loaded for it; without any it keeps its own.
    /// @throws FileError where the files do not say how many steps a parameter's states have taken, or contradict
    /// each other
    void find(SavedState& state, const Tensors& tensors, std::vector<std::string>& left) {
        into_ = &state;
        list();
        for (SavedProgress& saved : state.progress) {
            find_progress(state.groups[saved.group]->geometry(), saved, tensors, left);
        }
        for (SavedScalar& scalar : state.scalars) {
            if (!read(scalar)) { left.push_back(scalar.name); }
        }
    }
    /// Returns the blobs that the files have, with their targets; the names of the others are appended to `left`.
    List<Blob> blobs(const SavedState& state, std::vector<std::string>& left) {
        List<Blob> found;
        for (const auto& [name, to] : state.blobs) {
            const std::string stored = concat("blob.", name);
            Stored* const from = files_.find(scalars_file, stored);
            if (from == nullptr) {
                left.push_back(stored);
                continue;
            }
            std::vector<std::uint8_t>& bytes = found.push_back({to, {}}).bytes;
            bytes.resize(from->tensor.bytes.size());
            read(*from, std::as_writable_bytes(std::span(bytes)));
        }
        return found;
    }

  private:
    using Stored = CheckpointFiles::Stored;

    void read(Stored& from, std::span<std::byte> bytes) {
        files_.file(from).read(from.begin, bytes);
        from.used = true;
        if (files_.verified() && crc32c::of(bytes) != from.crc32c) {
            throw_damaged(files_.path(from), concat("'", from.tensor.name, "'"), where_);
        }
    }
    void read(Stored& from, SavedScalar& scalar) {
        const auto type = scalar.real ? safetensors::DType::f64 : safetensors::DType::u64;
        if (from.tensor.type != type || from.tensor.numel() != 1) {
            throw_file_error(files_.path(from), where_, "'", scalar.name, "' is no ", safetensors::name(type));
        }
        read(from, std::as_writable_bytes(std::span(&scalar.bits, 1)));
        if (!scalar.is_finite()) {
            throw_file_error(files_.path(from), where_, "'", scalar.name, "' is ",
                             number_text(std::bit_cast<double>(scalar.bits)), ", expected a finite number");
        }
    }
    /// Reads a number by its name. @returns whether the files have it
    bool read(SavedScalar& scalar) {
        Stored* const from = files_.find(scalars_file, scalar.name);
        if (from != nullptr) { read(*from, scalar); }
        return from != nullptr;
    }
    [[noreturn]] void refuse(std::string_view what) const {
        throw_file_error(files_.first_path(), where_, other_optimizer(files_, into_->groups),
                         "and the files beside it ", what,
                         "; checkpoint::LoadOptions::states = false loads the parameters alone");
    }

    void list() {
        for (Stored& stored : files_.tensors()) {
            if (files_.kind(stored) != scalars_file) { continue; }
            const std::string& name = stored.tensor.name;
            if (!name.starts_with(SavedProgress::part_mark)) { continue; }
            // "part.15.wte.steps"
            const std::size_t element = SavedProgress::part_mark.size();
            const std::size_t tensor = name.find('.', element) + 1;
            const std::size_t number = name.rfind('.');
            const bool counts = tensor > element + 1 && tensor < element + 20 && number >= tensor &&
                                name.find_first_not_of("0123456789", element) == tensor - 1;
            if (counts) { parts_[name.substr(tensor, number - tensor)].insert(std::stoull(name.substr(element))); }
        }
    }
    void find_progress(const GroupGeometry& geometry, SavedProgress& saved, const Tensors& tensors,
                       std::vector<std::string>& left) {
        GroupProgress& progress = saved.progress;
        std::optional<std::size_t> furthest;
        for (std::size_t p = 0; p < geometry.parameters.size(); ++p) {
            const From& from = tensors[saved.group][p];
            if (progress.updated[p] == 0 || from.names.empty()) { continue; }
            find_parameter(progress, p, from, left);
            if (from.states) { find_parts(progress, p, from, geometry.parameters[p].shape.numel()); }
            if (!furthest || progress.of(p)[0] > progress.of(*furthest)[0]) { furthest = p; }
        }
        if (furthest) { progress.own.assign(progress.of(*furthest).begin(), progress.of(*furthest).end()); }
    }
    /// Reads one parameter's numbers, by the names of its tensors.
    void find_parameter(GroupProgress& progress, std::size_t p, const From& from, std::vector<std::string>& left) {
        const auto its = progress.of(p);
        for (std::size_t t = 0; t < from.names.size(); ++t) {
            const std::string& tensor = from.names[t];
            for (std::size_t n = 0; n < progress.numbers.size(); ++n) {
                const auto& number = progress.numbers[n];
                SavedScalar scalar{SavedProgress::of_tensor(tensor, number.name), number.real, its[n]};
                SavedScalar common{SavedProgress::of_tensors(number.name), number.real, its[n]};
                const bool has_common = read(common);
                if (!read(scalar)) {
                    if (has_common) {
                        scalar.bits = common.bits;
                    } else if (from.states) {
                        refuse(concat("have states of '", tensor, "' and not '", scalar.name,
                                      "', without which it is not known how many steps they are of"));
                    } else {
                        left.push_back(scalar.name);
                    }
                }
                if (t > 0 && scalar.bits != its[n]) {
                    refuse(concat("have '", number.name, "' of '", from.names.front(), "' and another one of '",
                                  tensor, "', which are one parameter here"));
                }
                its[n] = scalar.bits;
            }
        }
    }
    /// Reads the parts of a parameter whose elements have taken fewer steps than the first ones: those that the files
    /// list, and elements that the files lack.
    void find_parts(GroupProgress& progress, std::size_t p, const From& from, std::size_t numel) {
        List<GroupProgress::Part> parts;
        const auto keep = [&](auto wanted) {
            for (const GroupProgress::Part& part : progress.parts) {
                if (wanted(part)) { parts.push_back(part); }
            }
        };
        keep([&](const auto& part) { return part.parameter < p; });
        for (const std::string& name : from.names) {
            const auto known = parts_.find(name);
            if (known == parts_.end()) { continue; }
            if (!from.plain || from.names.size() > 1) {
                refuse(concat("have rows of '", name,
                              "' that have taken fewer steps than the others, and it is no "
                              "parameter here, or one in another order"));
            }
            for (const std::size_t begin : known->second) {
                GroupProgress::Part& part = parts.emplace_back(GroupProgress::Part{p, begin, progress.beginning});
                for (std::size_t n = 0; n < progress.numbers.size(); ++n) {
                    const auto& number = progress.numbers[n];
                    SavedScalar scalar{SavedProgress::of_part(name, begin, number.name), number.real,
                                       part.numbers[n]};
                    read(scalar);
                    part.numbers[n] = scalar.bits;
                }
            }
        }
        if (from.elements < numel) { parts.push_back({p, from.elements, progress.beginning}); }
        keep([&](const auto& part) { return part.parameter > p; });
        progress.parts = std::move(parts);
    }

    CheckpointFiles& files_;
    const SavedState* into_ = nullptr;  // once numbers are looked for
    SourceLocation where_;
    std::map<std::string, std::set<std::size_t>> parts_;  // first elements of parts, by tensor
};

}  // namespace shardkit::detail
