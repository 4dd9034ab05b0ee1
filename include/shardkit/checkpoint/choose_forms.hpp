// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <utility>

#include <shardkit/checkpoint/checkpoint_files.hpp>
#include <shardkit/checkpoint/safetensors.hpp>
#include <shardkit/checkpoint/stored_as.hpp>
#include <shardkit/checkpoint/values_by_kind.hpp>
#include <shardkit/core/source_location.hpp>
#include <shardkit/detail/list.hpp>
#include <shardkit/detail/range.hpp>

namespace shardkit::detail {

/// Returns whether the files have a parameter's state in blocks of 8 bits; `otherwise` where they do not have it.
inline bool is_in_blocks(const SavedValues& values, std::size_t parameter, CheckpointFiles& files,
                         const checkpoint::TensorNames& names, bool otherwise, SourceLocation where) {
    for (const auto& [name, order] : values.stored(names, parameter, where)) {
        const auto* const found = files.find(values.kind.file(), name);
        if (found != nullptr) { return found->tensor.type == safetensors::DType::u8; }
    }
    return otherwise;
}

/// Shows each parameter's states in the form that the files have them in.
inline void choose_forms(const List<std::unique_ptr<SavedGroup>>& groups, CheckpointFiles& files,
                         const checkpoint::TensorNames& names, SourceLocation where) {
    for (const auto& group : groups) {
        for (const StateForm& form : group->forms) {
            const SavedValues& first = *group->values[form.first];
            List<char> others(first.of.size());
            for (std::size_t p = 0; p < others.size(); ++p) {
                if (first.of[p] == 0) { continue; }
                others[p] = is_in_blocks(first, p, files, names, form.in_blocks, where) != form.in_blocks ? 1 : 0;
            }
            if (!has(others, 1)) { continue; }
            for (std::unique_ptr<SavedValues>& other : form.other(first, others, where)) {
                other->rule = first.rule;
                group->values.push_back(std::move(other));
            }
            for (std::size_t v = form.first; v < form.first + form.count(); ++v) {
                for (std::size_t p = 0; p < others.size(); ++p) {
                    if (others[p] != 0) { group->values[v]->of[p] = 0; }
                }
            }
        }
    }
}

}  // namespace shardkit::detail
