// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <shardkit/checkpoint/checkpoint_files.hpp>
#include <shardkit/checkpoint/checkpoint_plan.hpp>
#include <shardkit/checkpoint/crc32c.hpp>
#include <shardkit/checkpoint/file_calls.hpp>
#include <shardkit/checkpoint/load_plan.hpp>
#include <shardkit/checkpoint/manifest.hpp>
#include <shardkit/checkpoint/options.hpp>
#include <shardkit/checkpoint/state_to_save_or_load.hpp>
#include <shardkit/checkpoint/stored_as.hpp>
#include <shardkit/checkpoint/values_by_kind.hpp>
#include <shardkit/core/error.hpp>
#include <shardkit/detail/concat.hpp>
#include <shardkit/detail/fnv.hpp>
#include <shardkit/detail/list.hpp>
#include <shardkit/spi/ranks.hpp>

namespace shardkit::detail {

/// Returns the manifest of a plan's files. @param sums  one digest for each parameter's tensor of all files
inline Manifest manifest_of(const CheckpointPlan& plan, std::uint64_t step,
                            const std::vector<std::pair<std::string, std::string>>& strings,
                            const List<std::uint32_t>& sums) {
    const auto digest = [](const std::string& text) { return crc32c::of(std::as_bytes(std::span(text))); };
    Manifest manifest{step, {}, strings};
    std::size_t next = 0;
    for (const PlannedFile& file : plan.files) {
        manifest.files.push_back({file.name, file.bytes, digest(file.begin), file.digests});
        std::uint32_t sum = 0;  // over the parameters that share a tensor
        for (const PlannedTensor& tensor : file.tensors) {
            const std::size_t size = size_of(tensor.type);
            sum ^= crc32c::behind(sums[next++], tensor.behind(size));
            if (tensor.behind(size) > 0) { continue; }
            manifest.files.back().tensors.push_back(
                {tensor.name, crc32c::finished(std::exchange(sum, 0U), tensor.tensor_bytes(size))});
        }
    }
    if (!plan.index.empty()) {
        manifest.files.push_back({std::string(index_name), plan.index.size(), digest(plan.index), {}});
    }
    return manifest;
}

/// The files of a save as they will be, in memory and with zeros for the parameters' elements: a load is planned from
/// them before any is made. A load opens, reads and closes them, and calls nothing else.
class PlannedFiles final : public checkpoint::PosixFiles {
  public:
    /// @param files  of a plan, as its `index` and the text of the `manifest`: they outlive this object
    PlannedFiles(const List<PlannedFile>& files, std::string_view index, std::string_view folder,
                 std::string_view manifest) {
        const auto path = [&](std::string_view name) { return concat(folder, "/", name); };
        files_.push_back({path(manifest_name), manifest, {}, manifest.size()});
        files_.push_back({path(index_name), index, {}, index.size()});
        for (const PlannedFile& file : files) {
            files_.push_back({path(file.name), file.begin, file.scalars, file.bytes});
        }
    }

    int open_to_read(const std::string& path, int& file, std::uint64_t& bytes) override {
        for (std::size_t f = 0; f < files_.size(); ++f) {
            if (files_[f].path != path) { continue; }
            file = static_cast<int>(f);
            bytes = files_[f].bytes;
            return 0;
        }
        return ENOENT;
    }
    int read(int file, std::uint64_t offset, std::span<std::byte> bytes, std::size_t& count) override {
        const File& from = files_[static_cast<std::size_t>(file)];
        count = static_cast<std::size_t>(std::min<std::uint64_t>(bytes.size(), from.bytes - offset));
        std::fill_n(bytes.data(), count, std::byte{});
        std::uint64_t begin = 0;
        for (const std::string_view text : {from.begin, from.behind}) {
            const std::uint64_t first = std::max(begin, offset);
            const std::uint64_t end = std::min(begin + text.size(), offset + count);
            if (first < end) {
                std::memcpy(bytes.data() + (first - offset), text.data() + (first - begin), end - first);
            }
            begin += text.size();
        }
        return 0;
    }
    int close(int /*file*/) override { return 0; }

  private:
    struct File {
        std::string path;
        std::string_view begin, behind;
        std::uint64_t bytes;
    };
    List<File> files_;
};

/// Returns a hash of all that a planned load looks at. The values of numbers and the sizes of blobs, which differ
/// from step to step, are not in it.
inline std::uint64_t hash_of_load(const CheckpointPlan& plan, const SavedState& state,
                                  const checkpoint::TensorNames& names, SourceLocation where) {
    Fnv texts;
    StatementHash words = statement_hash(1, plan.hash_of_tensors());
    const auto flags = [&](const List<char>& each) { texts.add(std::string_view(each.data(), each.size())); };
    for (const PlannedFile& file : plan.files) {
        for (const PlannedTensor& of : file.tensors) {
            words = statement_hash(words, of.group, of.values, of.parameter, of.order.begin(), of.order.numel(),
                                   of.order.plain(), of.order.padded());
        }
        for (const Manifest::Tensor& number : file.digests) { texts.add(number.name); }
    }
    for (const auto& group : state.groups) {
        const GroupGeometry& geometry = group->geometry();
        texts.add(geometry.path);
        for (const PlacedParameter& parameter : geometry.parameters) {
            words = statement_hash(words, parameter.shape.numel());
        }
        for (const ParameterName& alias : geometry.aliases) {
            ParameterRecord called = geometry.parameters[alias.number];
            if (called.name == alias.name) { continue; }
            called.name = alias.name;
            for (const std::string& name : names_of_alias(names, geometry.path, called, where)) { texts.add(name); }
        }
        for (const auto& values : group->values) {
            texts.add(values->kind.file());
            flags(values->of);
            words = statement_hash(words, static_cast<unsigned>(values->type));
        }
        for (const StateForm& form : group->forms) { words = statement_hash(words, form.first, form.in_blocks); }
    }
    for (const SavedProgress& saved : state.progress) {
        words = statement_hash(words, saved.group, saved.progress.parts.size());
        flags(saved.progress.updated);
    }
    for (const SavedScalar& number : plan.numbers) { words = statement_hash(words, number.real, number.is_finite()); }
    return statement_hash(words, texts.hash);
}

/// Checks that what a save is about to write can be read: that its manifest is valid, whatever the digests of tensors
/// are, and that a load into the saved state finds all that it needs, and the numbers that there are.
/// @param manifest  without digests of tensors   @param proven  hashes of such loads that need not be planned again
/// @throws std::invalid_argument for texts and names that make no valid manifest, and as a load
inline void prove_load(const CheckpointPlan& plan, SavedState& state, const checkpoint::TensorNames& names,
                       const std::string& folder, const Manifest& manifest, List<std::uint64_t>& proven,
                       SourceLocation where) {
    const auto check_size = [&](std::size_t bytes) {
        if (bytes <= safetensors::max_header_bytes) { return; }
        throw_invalid_argument(where, "save: names and checkpoint::SaveOptions::strings make a manifest of ",
                               "more than ", safetensors::max_header_bytes, " bytes, which no load reads");
    };
    std::size_t bytes = 0;
    for (const auto& [key, text] : manifest.strings) { bytes += key.size() + text.size(); }
    check_size(bytes);
    require_texts(manifest.strings, where);
    const std::string text = manifest_text(manifest);
    check_size(text.size());
    try {
        ManifestReader::read(text);
    } catch (const JsonError& error) {
        throw_invalid_argument(where, "save: names and texts make no valid manifest: ", error.what);
    }
    const std::uint64_t hash = hash_of_load(plan, state, names, where);
    if (has(proven, hash)) { return; }
    PlannedFiles planned(plan.files, plan.index, folder, text);
    CheckpointFiles files = CheckpointFiles::of_checkpoint(planned, folder, where);
    checkpoint::LoadOptions options;
    options.names = names;
    const LoadPlan load(state, files, options, LoadPlan::Twice::elsewhere, where);
    if (!(state.all_scalars(names, where) == plan.numbers)) {
        throw std::logic_error("save: a load of this state would not find the numbers that it has");
    }
    if (proven.size() == 16) { proven.clear(); }  // of states in turns there are a few
    proven.push_back(hash);
}

}  // namespace shardkit::detail
