// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include <shardkit/checkpoint/checkpoint_files.hpp>
#include <shardkit/checkpoint/saved_group.hpp>
#include <shardkit/checkpoint/stored_as.hpp>
#include <shardkit/core/error.hpp>
#include <shardkit/detail/concat.hpp>
#include <shardkit/detail/list.hpp>

namespace shardkit::detail {

/// Returns whether the files have a state in blocks of 8 bits; `otherwise` where they do not have it.
inline bool is_in_blocks(const SavedValues& values, CheckpointFiles& files, const checkpoint::TensorNames& names,
                         bool otherwise, SourceLocation where) {
    for (std::size_t p = 0; p < values.geometry().parameters.size(); ++p) {
        if (values.of[p] == 0) { continue; }
        for (const auto& [name, order] : values.stored(names, p, where)) {
            const auto* const found = files.find(values.kind.file(), name);
            if (found != nullptr) { return found->tensor.type == safetensors::DType::u8; }
        }
    }
    return otherwise;
}

/// Shows each state in the form that the files have it in.
inline void choose_forms(const List<std::unique_ptr<SavedGroup>>& groups, CheckpointFiles& files,
                         const checkpoint::TensorNames& names, SourceLocation where) {
    for (const auto& group : groups) {
        // From the last one, so that the places of those before it stay.
        for (std::size_t f = group->forms.size(); f > 0; --f) {
            const StateForm& form = group->forms[f - 1];
            const SavedValues& first = *group->values[form.first];
            if (is_in_blocks(first, files, names, form.in_blocks, where) == form.in_blocks) { continue; }
            List<std::unique_ptr<SavedValues>> others = form.other(first, where);
            List<std::unique_ptr<SavedValues>> shown;
            for (std::size_t v = 0; v < group->values.size(); ++v) {
                if (v == form.first) {
                    for (std::unique_ptr<SavedValues>& other : others) { shown.push_back(std::move(other)); }
                }
                if (v - form.first >= form.count()) { shown.push_back(std::move(group->values[v])); }
            }
            group->values = std::move(shown);
        }
    }
}

/// Checks that codes are loaded with their scales. @throws FileError that names what the files lack
inline void require_whole_blocks(const List<std::unique_ptr<SavedGroup>>& groups, const CheckpointFiles& files,
                                 SourceLocation where) {
    for (const auto& group : groups) {
        for (const auto& scales : group->values) {
            if (!scales->kind.scales) { continue; }
            const auto codes = std::find_if(group->values.begin(), group->values.end(), [&](const auto& other) {
                return other->kind == StoredKind{Role::states, scales->kind.state};
            });
            for (std::size_t p = 0; p < scales->of.size(); ++p) {
                if (scales->is_read(p) == (**codes).is_read(p)) { continue; }
                const SavedValues& lacking = scales->is_read(p) ? **codes : *scales;
                throw_file_error(
                    files.first_path(), where, "it and the files beside it lack '",
                    lacking.kind.of(concat(group->geometry().path, ".", group->geometry().parameters[p].name)),
                    "', without which the rest of the state is no number");
            }
        }
    }
}

}  // namespace shardkit::detail
