// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include <shardkit/checkpoint/checkpoint_plan.hpp>
#include <shardkit/checkpoint/manifest.hpp>
#include <shardkit/checkpoint/prove_load.hpp>
#include <shardkit/checkpoint/state_to_save_or_load.hpp>
#include <shardkit/core/element.hpp>
#include <shardkit/detail/concat.hpp>
#include <shardkit/detail/list.hpp>
#include <shardkit/reshard/boxes.hpp>

namespace shardkit::detail {

/// The files that a save of the source would make, as every rank knows them.
struct SourceFiles {
    std::string manifest, index;
    List<PlannedFile> files;  ///< without their tensors
    Boxes boxes;

    static SourceFiles of(const CheckpointPlan& plan, const SavedState& state) {
        SourceFiles source;
        source.manifest = manifest_text(manifest_of(plan, 0, {}, List<std::uint32_t>(plan.tensors())));
        source.index = plan.index;
        List<std::size_t> first_values;
        for (const auto& group : state.groups) {
            first_values.push_back(source.boxes.values);
            source.boxes.values += group->values.size();
        }
        for (const PlannedFile& file : plan.files) {
            for (const PlannedTensor& tensor : file.tensors) {
                const PlacedParameter& parameter =
                    state.groups[tensor.group]->values[tensor.values]->geometry().parameters[tensor.parameter];
                const std::size_t size = size_of(tensor.type);
                source.boxes.tensors.push_back({source.files.size(), first_values[tensor.group] + tensor.values,
                                                tensor.begin, size, size, parameter.range, parameter.part,
                                                tensor.order});
                source.boxes.names.push_back(tensor.name);
            }
            source.files.push_back({file.name, file.begin, file.bytes, {}, file.scalars, {}});
        }
        return source;
    }
    void add_to(Parcel& parcel) const {
        parcel.add_text(manifest);
        parcel.add_text(index);
        parcel.add(files.size());
        for (const PlannedFile& file : files) {
            for (const std::string& text : {file.name, file.begin, file.scalars}) { parcel.add_text(text); }
            parcel.add(file.bytes);
        }
        boxes.add_to(parcel);
    }
    static SourceFiles of(OpenedParcel& parcel) {
        SourceFiles source;
        source.manifest = parcel.next_text();
        source.index = parcel.next_text();
        for (std::size_t left = parcel.next<std::size_t>(); left > 0; --left) {
            PlannedFile& file = source.files.push_back({});
            for (std::string* const text : {&file.name, &file.begin, &file.scalars}) { *text = parcel.next_text(); }
            file.bytes = parcel.next<std::uint64_t>();
        }
        source.boxes = Boxes::of(parcel);
        return source;
    }
    std::size_t number(std::string_view path) const noexcept {
        std::size_t f = 0;
        while (f < files.size() && path != concat(folder, "/", files[f].name)) { ++f; }
        return f;
    }
    /// The folder in which refusals say that these files are.
    static constexpr std::string_view folder = "source";
};

}  // namespace shardkit::detail
