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
#include <shardkit/checkpoint/file_calls.hpp>
#include <shardkit/checkpoint/load_options.hpp>
#include <shardkit/checkpoint/load_plan.hpp>
#include <shardkit/checkpoint/manifest.hpp>
#include <shardkit/checkpoint/saved_state.hpp>
#include <shardkit/core/error.hpp>
#include <shardkit/detail/concat.hpp>
#include <shardkit/detail/list.hpp>

namespace shardkit::detail {

/// The files of a save as they will be, in memory and with zeros for the parameters' elements: a load is planned from
/// them before any is made. They can be opened and read, and nothing else.
class PlannedFiles final : public checkpoint::FileCalls {
  public:
    /// @param manifest  its text   @pre `plan` outlives it
    PlannedFiles(const CheckpointPlan& plan, std::string_view folder, const std::string& manifest) {
        const auto path = [&](std::string_view name) { return concat(folder, "/", name); };
        files_.push_back({path(manifest_name), manifest, {}, manifest.size()});
        files_.push_back({path(index_name), plan.index, {}, plan.index.size()});
        for (const PlannedFile& file : plan.files) {
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

    int make_folder(const std::string& /*path*/) override { return EROFS; }
    int create_file(const std::string& /*path*/) override { return EROFS; }
    int open_to_write(const std::string& /*path*/, int& /*file*/) override { return EROFS; }
    int reserve(int /*file*/, std::uint64_t /*bytes*/) override { return EROFS; }
    int write(int /*file*/, std::uint64_t /*at*/, std::span<const std::byte> /*bytes*/, std::size_t& /*n*/) override {
        return EROFS;
    }
    int sync(int /*file*/) override { return EROFS; }
    int sync_folder(const std::string& /*path*/) override { return EROFS; }
    int list(const std::string& /*path*/, std::vector<std::string>& /*names*/) override { return EROFS; }
    int rename(const std::string& /*from*/, const std::string& /*to*/) override { return EROFS; }
    int exchange(const std::string& /*a*/, const std::string& /*b*/) override { return EROFS; }
    int remove_file(const std::string& /*path*/) override { return EROFS; }
    int remove_folder(const std::string& /*path*/) override { return EROFS; }
    int lock(const std::string& /*file*/, int& /*held*/) override { return EROFS; }
    void unlock(int /*held*/) override {}

  private:
    struct File {
        std::string path;
        std::string_view begin, behind;
        std::uint64_t bytes;
    };
    List<File> files_;
};

/// Checks that what a save is about to write can be read: that its manifest is valid, whatever the digests of tensors
/// are, and that a load into the saved state finds all that it needs, and the numbers that there are.
/// @param manifest  without digests of tensors
/// @throws std::invalid_argument for texts and names that make no valid manifest, and as a load
inline void prove_load(const CheckpointPlan& plan, SavedState& state, const checkpoint::TensorNames& names,
                       const std::string& folder, const Manifest& manifest, SourceLocation where) {
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
    PlannedFiles planned(plan, folder, text);
    CheckpointFiles files = CheckpointFiles::of_checkpoint(planned, folder, where);
    const List<SavedScalar> numbers = state.all_scalars(names, where);
    checkpoint::LoadOptions options;
    options.names = names;
    const LoadPlan load(state, files, options, false, where);
    if (!(state.all_scalars(names, where) == numbers)) {
        throw std::logic_error("save: a load of this state would not find the numbers that it has");
    }
}

}  // namespace shardkit::detail
