// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <shardkit/checkpoint/saved_group.hpp>
#include <shardkit/checkpoint/stored_as.hpp>
#include <shardkit/core/source_location.hpp>
#include <shardkit/detail/concat.hpp>
#include <shardkit/optim/group_progress.hpp>

namespace shardkit::detail {

/// A number that is the same on every rank: a group's steps, say.
struct SavedScalar {
    std::string name;
    bool real = false;
    std::uint64_t bits = 0;  ///< of the double, or the number itself
};

/// How far an optimizer is with a group.
struct SavedProgress {
    std::size_t group = 0;  ///< of the state's
    GroupProgress progress;

    /// What a number of the group's is called in the file of scalars: "group.layer.steps".
    static std::string of_group(std::string_view path, std::string_view number) {
        return concat("group.", path, ".", number);
    }
    /// What one is called of the parameter that is, or has some of its elements in, the tensor of that name:
    /// "tensor.layer.bias.steps". It is there where it is another than the group's.
    static std::string of_tensor(std::string_view tensor, std::string_view number) {
        return concat("tensor.", tensor, ".", number);
    }
};

/// What is saved or loaded, as it is at the moment.
struct SavedState {
    std::vector<std::unique_ptr<SavedGroup>> groups;
    std::vector<SavedProgress> progress;  ///< of the groups that an optimizer updates
    std::vector<SavedScalar> scalars;     ///< further ones
    std::vector<std::pair<std::string, std::vector<std::uint8_t>*>> blobs;

    /// All numbers as a file has them, `progress` first. @param names  of tensors
    std::vector<SavedScalar> all_scalars(const TensorNames& names, SourceLocation where) const {
        std::vector<SavedScalar> all;
        for (const SavedProgress& saved : progress) {
            const GroupGeometry& geometry = groups[saved.group]->geometry();
            const auto& numbers = saved.progress.numbers;
            for (std::size_t n = 0; n < numbers.size(); ++n) {
                all.push_back({SavedProgress::of_group(geometry.path, numbers[n].name), numbers[n].real,
                               saved.progress.own[n]});
            }
            for (std::size_t p = 0; p < geometry.parameters.size(); ++p) {
                const PlacedParameter& parameter = geometry.parameters[p];
                const auto its = saved.progress.of(p);
                if (std::equal(its.begin(), its.end(), saved.progress.own.begin())) { continue; }
                for (const auto& [tensor, order] :
                     StoredOrder::of(names(geometry.path, parameter), geometry.path, parameter, where)) {
                    for (std::size_t n = 0; n < numbers.size(); ++n) {
                        if (its[n] == saved.progress.own[n]) { continue; }
                        all.push_back({SavedProgress::of_tensor(tensor, numbers[n].name), numbers[n].real, its[n]});
                    }
                }
            }
        }
        all.insert(all.end(), scalars.begin(), scalars.end());
        return all;
    }
};

}  // namespace shardkit::detail
