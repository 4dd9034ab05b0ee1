// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <shardkit/checkpoint/saved_group.hpp>
#include <shardkit/checkpoint/stored_as.hpp>
#include <shardkit/core/error.hpp>
#include <shardkit/core/source_location.hpp>
#include <shardkit/detail/concat.hpp>
#include <shardkit/detail/list.hpp>
#include <shardkit/spi/optimizers.hpp>

namespace shardkit::detail {

/// A number that is the same on every rank, for example a group's step count.
struct SavedScalar {
    std::string name;
    bool real = false;
    std::uint64_t bits = 0;  ///< bits of the double, or the integer itself

    bool is_finite() const noexcept { return !real || std::isfinite(std::bit_cast<double>(bits)); }
    friend bool operator==(const SavedScalar&, const SavedScalar&) = default;
};

/// An optimizer's progress with a group.
struct SavedProgress {
    std::size_t group = 0;  ///< index in the state
    GroupProgress progress;

    /// Returns the name of a number of every tensor that has none of its own in the scalars file: "tensors.steps".
    static std::string of_tensors(std::string_view number) { return concat("tensors.", number); }
    /// Returns the name of a number of the parameter that is, or has some of its elements in, a tensor:
    /// "tensor.layer.bias.steps".
    static std::string of_tensor(std::string_view tensor, std::string_view number) {
        return concat("tensor.", tensor, ".", number);
    }
    /// Returns the name of a number of a GroupProgress::Part, by its first element: "part.15.layer.bias.steps".
    static std::string of_part(std::string_view tensor, std::size_t begin, std::string_view number) {
        return concat(part_mark, begin, ".", tensor, ".", number);
    }
    static constexpr std::string_view part_mark = "part.";
};

/// A state to save or load, as it currently is.
struct SavedState {
    List<std::unique_ptr<SavedGroup>> groups;
    List<SavedProgress> progress;  ///< of the groups that an optimizer updates
    List<SavedScalar> scalars;     ///< further numbers
    std::vector<std::pair<std::string, std::vector<std::uint8_t>*>> blobs;  ///< the user's bytes, by name
    std::shared_ptr<void>
        trust;  ///< lets the host wait for streams of a lost World, where the state was whole before

    /// Returns all numbers as the file stores them, those of `progress` first. What belongs to a parameter has the
    /// name of its tensor, whatever the group's path is. @param names  of tensors
    /// @throws std::invalid_argument for parameters that share a tensor and have different progress
    List<SavedScalar> all_scalars(const checkpoint::TensorNames& names, SourceLocation where) const {
        List<SavedScalar> all;
        std::map<std::string_view, std::uint64_t> common;  // by the number's name: the first parameter's
        std::map<std::string, Known> known;                // by tensor
        for (const SavedProgress& saved : progress) {
            const GroupGeometry& geometry = groups[saved.group]->geometry();
            const auto& numbers = saved.progress.numbers;
            add_parts(all, saved, names, where);
            for (std::size_t p = 0; p < geometry.parameters.size(); ++p) {
                const PlacedParameter& parameter = geometry.parameters[p];
                if (saved.progress.updated[p] == 0) { continue; }
                const Known its{concat(geometry.path, ".", parameter.name), numbers, saved.progress.of(p)};
                for (const auto& [tensor, order] :
                     StoredOrder::of(names(geometry.path, parameter), geometry.path, parameter, where)) {
                    const auto [at, is_new] = known.emplace(tensor, its);
                    const Known& other = at->second;
                    for (std::size_t n = 0; n < numbers.size(); ++n) {
                        const std::uint64_t number = its.numbers[n];
                        if (n >= other.numbers.size() || other.names[n].name != numbers[n].name ||
                            other.numbers[n] != number) {
                            throw_invalid_argument(where, "save: '", other.parameter, "' and '", its.parameter,
                                                   "' share the tensor '", tensor, "' and have not the same ",
                                                   numbers[n].name, ": expected a tensor for each");
                        }
                        if (!is_new) { continue; }
                        const auto [first, is_first] = common.emplace(numbers[n].name, number);
                        if (is_first) {
                            all.push_back({SavedProgress::of_tensors(numbers[n].name), numbers[n].real, number});
                        } else if (number != first->second) {
                            all.push_back(
                                {SavedProgress::of_tensor(tensor, numbers[n].name), numbers[n].real, number});
                        }
                    }
                }
            }
        }
        all.append(scalars.begin(), scalars.end());
        return all;
    }

  private:
    /// The progress of the parameter that a tensor is of.
    struct Known {
        std::string parameter;
        std::span<const GroupProgress::Number> names;
        std::span<const std::uint64_t> numbers;
    };

    void add_parts(List<SavedScalar>& all, const SavedProgress& saved, const checkpoint::TensorNames& names,
                   SourceLocation where) const {
        const GroupGeometry& geometry = groups[saved.group]->geometry();
        const auto& numbers = saved.progress.numbers;
        for (const GroupProgress::Part& part : saved.progress.parts) {
            const PlacedParameter& parameter = geometry.parameters[part.parameter];
            const auto tensors = StoredOrder::of(names(geometry.path, parameter), geometry.path, parameter, where);
            if (tensors.empty()) { continue; }
            if (tensors.size() > 1 || tensors.front().order.shares() || !tensors.front().order.plain()) {
                throw_invalid_argument(where, "save: the rows that '", geometry.path, ".", parameter.name,
                                       "' has grown by have taken fewer steps than the others: expected to store "
                                       "it as one tensor, in its own order");
            }
            for (std::size_t n = 0; n < numbers.size(); ++n) {
                all.push_back({SavedProgress::of_part(tensors.front().name, part.begin, numbers[n].name),
                               numbers[n].real, part.numbers[n]});
            }
        }
    }
};

}  // namespace shardkit::detail
