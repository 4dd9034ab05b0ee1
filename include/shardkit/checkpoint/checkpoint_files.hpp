// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <shardkit/checkpoint/checkpoint_folder.hpp>
#include <shardkit/checkpoint/crc32c.hpp>
#include <shardkit/checkpoint/file_calls.hpp>
#include <shardkit/checkpoint/file_names.hpp>
#include <shardkit/checkpoint/manifest.hpp>
#include <shardkit/checkpoint/model_files.hpp>
#include <shardkit/checkpoint/open_file.hpp>
#include <shardkit/checkpoint/read_header.hpp>
#include <shardkit/checkpoint/safetensors.hpp>
#include <shardkit/core/error.hpp>
#include <shardkit/detail/concat.hpp>
#include <shardkit/detail/fnv.hpp>
#include <shardkit/detail/list.hpp>

namespace shardkit::detail {

/// Returns the scale of codes as a file has it; empty without one.
inline std::string scale_text(double scale) { return scale > 0 ? number_text(scale) : std::string(); }
/// Checks that a file's codes have the scale of the elements that they are loaded to.
/// @throws FileError that names both
inline void require_scale(const std::string& path, std::string_view tensor, const std::string& given, double expected,
                          SourceLocation where) {
    const std::string scale = scale_text(expected);
    if (given == scale) { return; }
    const auto text = [](const std::string& of) { return of.empty() ? "no scale" : concat("a scale of ", of); };
    throw_file_error(path, where, "tensor '", tensor, "' has codes of 8 bits with ", text(given), ", expected ",
                     text(scale), ", as of the group's element type");
}

/// The tensors of a checkpoint or of a model's files, open for reading.
class CheckpointFiles {
  public:
    struct Stored {
        safetensors::Tensor tensor;
        std::size_t file = 0;
        std::uint64_t begin = 0;  ///< first byte in the file
        std::uint32_t crc32c = 0;
        bool used = false;  ///< asked for, or represented by another tensor that was
        bool read = false;
        std::string reader{};                            ///< the parameter that is loaded from it
        std::map<std::uint64_t, std::uint64_t> parts{};  ///< that were read of it: bytes, by the first one
        std::uint32_t sum = 0;                           ///< the digest of what was read
        std::string scale{};  ///< of codes of 8 bits, as the metadata gives it; empty without one
        std::string rule{};   ///< whose state it is; empty of what is no state
    };

    /// Opens the folder of a checkpoint that `save` has written. @throws FileError
    static CheckpointFiles of_checkpoint(checkpoint::FileCalls& calls, const std::string& folder,
                                         SourceLocation where) {
        CheckpointFiles files(calls, where);
        Manifest manifest = read_manifest(calls, folder, where);
        files.step_ = manifest.step;
        files.strings_ = std::move(manifest.strings);
        files.verified_ = true;
        for (const Manifest::File& file : manifest.files) {
            OpenFile opened = open_listed(calls, folder, file, where);
            if (file.name == index_name) {
                const std::string text = read_all(opened);
                if (crc32c::of(std::as_bytes(std::span(text))) != file.header_crc32c) {
                    throw_damaged(opened.path(), "it", where);
                }
                continue;
            }
            files.add(std::move(opened), kind_of_file(file.name), &file, nullptr);
        }
        return files;
    }
    /// Opens a model's file, an index, or a folder with either. @throws FileError
    static CheckpointFiles of_model(checkpoint::FileCalls& calls, const std::string& path, SourceLocation where) {
        CheckpointFiles files(calls, where);
        const ModelFiles model = ModelFiles::of(calls, path, where);
        for (const std::string& file : model.paths) {
            files.add(OpenFile::to_read(calls, file, where), "model", nullptr, &model);
        }
        files.check_index(model);
        return files;
    }

    std::uint64_t step() const noexcept { return step_; }
    const std::vector<std::pair<std::string, std::string>>& strings() const noexcept { return strings_; }
    /// Returns whether there are digests to compare with.
    bool verified() const noexcept { return verified_; }
    /// Returns the path of the first file; empty if there is none.
    std::string first_path() const { return files_.empty() ? std::string() : files_.front().path; }
    /// Adds what identifies the content of these files, whatever their names.
    void add_to(Fnv& identity) const {
        identity.add(step_);
        for (const Stored& stored : tensors_) {
            identity.add(stored.tensor.name);
            identity.add(stored.begin);
            identity.add(stored.tensor.bytes.size());
            identity.add(stored.crc32c);
        }
    }
    List<Stored>& tensors() noexcept { return tensors_; }
    const std::string& kind(const Stored& stored) const noexcept { return files_[stored.file].kind; }
    const std::string& path(const Stored& stored) const noexcept { return files_[stored.file].path; }
    /// Returns the file of a tensor. It stays open until `most_open` other files were asked for.
    /// @throws FileError when the size of the file has changed
    const OpenFile& file(const Stored& stored) {
        File& file = files_[stored.file];
        if (!file.open) {
            file.open = OpenFile::to_read(*calls_, file.path, where_);
            if (file.open->size() != file.bytes) {
                throw_file_error(file.path, where_, "has ", file.open->size(), " bytes, and had ", file.bytes);
            }
            keep_open(stored.file);
        }
        return *file.open;
    }
    /// Returns the tensor of that kind ("model", "state/exp_avg", "state/scalars") and name; null when there is none.
    Stored* find(std::string_view kind, const std::string& name) {
        const auto found = known_.find(key_of(kind, name));
        return found == known_.end() ? nullptr : &tensors_[found->second];
    }
    /// Returns the tensor that a missing name stands for according to the files' metadata; null if they do not list
    /// it.
    Stored* find_alias(std::string_view kind, const std::string& name) {
        const auto found = aliases_.find(key_of(kind, name));
        return found == aliases_.end() ? nullptr : find(kind, found->second);
    }

  private:
    CheckpointFiles(checkpoint::FileCalls& calls, SourceLocation where) : calls_(&calls), where_(where) {}

    /// One of the files. There may be more of them than a process may have open.
    struct File {
        std::string path;
        std::string kind;
        std::uint64_t bytes = 0;
        std::optional<OpenFile> open;
    };
    static constexpr std::size_t most_open = 16;
    void keep_open(std::size_t number) {
        std::size_t& place = open_[opened_++ % most_open];
        if (opened_ > most_open) { files_[place].open.reset(); }
        place = number;
    }
    static std::string key_of(std::string_view kind, std::string_view name) { return concat(kind, "\n", name); }

    /// @param expected  the manifest's entry of the file; null for a model's file
    /// @param model     its index may choose between several tensors of one name; null for a checkpoint's file
    void add(OpenFile&& file, const std::string& kind, const Manifest::File* expected, const ModelFiles* model) {
        const std::string path = file.path();
        files_.push_back({path, kind, file.size(), std::move(file)});
        keep_open(files_.size() - 1);
        const safetensors::Header header =
            read_header(*files_.back().open, expected == nullptr ? nullptr : &expected->header_crc32c, where_);
        if (expected != nullptr && expected->tensors.size() != header.tensors.size()) {
            throw_file_error(path, where_, "has ", header.tensors.size(), " tensors, the manifest ",
                             expected->tensors.size());
        }
        std::string rule;
        for (const auto& [key, value] : header.metadata) {
            if (key == rule_key) { rule = value; }
            if (key == kind_key && value != kind) {
                throw_file_error(path, where_, "holds '", safetensors::detail::shown(value),
                                 "' of a checkpoint, expected '", kind, "'");
            }
        }
        if (expected == nullptr) { strings_.insert(strings_.end(), header.metadata.begin(), header.metadata.end()); }
        // Tensors without bytes may be in another order than they were written in.
        std::map<std::string_view, std::uint32_t> digests;
        if (expected != nullptr) {
            for (const Manifest::Tensor& tensor : expected->tensors) { digests.emplace(tensor.name, tensor.crc32c); }
        }
        for (const safetensors::Tensor& tensor : header.tensors) {
            const auto digest = digests.find(tensor.name);
            if (expected != nullptr && digest == digests.end()) {
                throw_file_error(path, where_, "tensor '", tensor.name, "' is not in the manifest");
            }
            if (model != nullptr) {
                const auto place = model->place.find(tensor.name);
                if (place != model->place.end() && place->second != path) { continue; }
            }
            if (!known_.emplace(key_of(kind, tensor.name), tensors_.size()).second) {
                throw_file_error(path, where_, "tensor '", tensor.name, "' is in another file too");
            }
            tensors_.push_back({tensor, files_.size() - 1, header.data_begin + tensor.bytes.begin,
                                digest != digests.end() ? digest->second : 0});
            tensors_.back().rule = rule;
        }
        add_aliases(header, kind);
        for (const auto& [key, value] : header.metadata) {
            note(kind, scale_mark, &Stored::scale, key, value);
            note(kind, rule_mark, &Stored::rule, key, value);
        }
    }
    /// Notes the value of a key that is `mark` and the name of a tensor.
    void note(std::string_view kind, std::string_view mark, std::string Stored::*member, const std::string& key,
              const std::string& value) {
        if (!key.starts_with(mark)) { return; }
        Stored* const of = find(kind, key.substr(mark.size()));
        if (of != nullptr) { of->*member = value; }
    }
    /// Reads the names that stand for other tensors. Our own metadata store "alias:b" -> "a". Other writers of
    /// safetensors drop tensors that share memory, and store "b" -> "a".
    void add_aliases(const safetensors::Header& header, const std::string& kind) {
        constexpr std::string_view mark = "alias:";
        for (const auto& [key, value] : header.metadata) {
            aliases_.emplace(key_of(kind, key.starts_with(mark) ? key.substr(mark.size()) : key), value);
        }
    }
    /// Checks that each tensor is in the file that the index names.
    void check_index(const ModelFiles& model) const {
        for (const auto& [tensor, path] : model.place) {
            if (known_.contains(key_of("model", tensor))) { continue; }
            throw_file_error(path, where_, "lacks '", safetensors::detail::shown(tensor),
                             "', which the index says it has");
        }
    }

    checkpoint::FileCalls* calls_;
    SourceLocation where_;
    List<File> files_;
    std::array<std::size_t, most_open> open_{};  // indices of the open files, in turns
    std::size_t opened_ = 0;                     // how many were, so far
    List<Stored> tensors_;
    std::map<std::string, std::size_t> known_;    // of tensors_, by kind and name
    std::map<std::string, std::string> aliases_;  // from the metadata
    std::uint64_t step_ = 0;
    std::vector<std::pair<std::string, std::string>> strings_;
    bool verified_ = false;
};

}  // namespace shardkit::detail
