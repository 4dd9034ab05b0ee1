// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <shardkit/checkpoint/checkpoint_folder.hpp>
#include <shardkit/checkpoint/crc32c.hpp>
#include <shardkit/checkpoint/file_calls.hpp>
#include <shardkit/checkpoint/json_reader.hpp>
#include <shardkit/checkpoint/manifest.hpp>
#include <shardkit/checkpoint/open_file.hpp>
#include <shardkit/checkpoint/read_header.hpp>
#include <shardkit/checkpoint/safetensors.hpp>
#include <shardkit/core/error.hpp>
#include <shardkit/detail/concat.hpp>
#include <shardkit/detail/fnv.hpp>

namespace shardkit::detail {

/// The tensors of a checkpoint, or of a model's files, open to be read.
class CheckpointFiles {
  public:
    struct Stored {
        safetensors::Tensor tensor;
        std::size_t file = 0;
        std::uint64_t begin = 0;  ///< byte of the file
        std::uint32_t crc32c = 0;
        bool used = false;  ///< asked for, or spoken for by what is
        bool read = false;
    };

    /// A folder that `save` has written. @throws FileError
    static CheckpointFiles of_checkpoint(FileCalls& calls, const std::string& folder, SourceLocation where) {
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
            files.add(std::move(opened), kind_of(file.name), &file);
        }
        return files;
    }
    /// A model's file, or a folder with model.safetensors or the index of several. @throws FileError
    static CheckpointFiles of_model(FileCalls& calls, const std::string& path, SourceLocation where) {
        CheckpointFiles files(calls, where);
        std::vector<std::string> names;
        if (calls.list(path, names) != 0) {
            files.add(OpenFile::to_read(calls, path, where), "model", nullptr);
            return files;
        }
        const auto has = [&](std::string_view name) {
            return std::find(names.begin(), names.end(), name) != names.end();
        };
        if (has(index_name)) {
            for (const std::string& file : files.indexed(concat(path, "/", index_name))) {
                files.add(OpenFile::to_read(calls, concat(path, "/", file), where), "model", nullptr);
            }
            files.check_index();
        } else if (has("model.safetensors")) {
            files.add(OpenFile::to_read(calls, concat(path, "/model.safetensors"), where), "model", nullptr);
        } else {
            throw FileError(path, concat("is a folder without model.safetensors or ", index_name), where);
        }
        return files;
    }

    std::uint64_t step() const noexcept { return step_; }
    const std::vector<std::pair<std::string, std::string>>& strings() const noexcept { return strings_; }
    /// Whether there are digests to compare with.
    bool verified() const noexcept { return verified_; }
    const std::vector<OpenFile>& files() const noexcept { return files_; }
    /// What tells these files from others, whatever they are called.
    void add_to(Fnv& identity) const {
        identity.add(step_);
        for (const Stored& stored : tensors_) {
            identity.add(stored.tensor.name);
            identity.add(stored.begin);
            identity.add(stored.tensor.bytes.size());
            identity.add(stored.crc32c);
        }
    }
    std::vector<Stored>& tensors() noexcept { return tensors_; }
    const std::string& kind(const Stored& stored) const noexcept { return kinds_[stored.file]; }
    const OpenFile& file(const Stored& stored) const noexcept { return files_[stored.file]; }
    /// The tensor of a kind ("model", "exp_avg", "scalars") and name; null when there is none.
    Stored* find(std::string_view kind, const std::string& name) {
        const auto found = known_.find(std::pair(std::string(kind), name));
        return found == known_.end() ? nullptr : &tensors_[found->second];
    }

  private:
    CheckpointFiles(FileCalls& calls, SourceLocation where) : calls_(&calls), where_(where) {}

    /// "state/exp_avg-00001-of-00002.safetensors" -> "exp_avg"
    static std::string kind_of(std::string_view name) {
        name = name.substr(0, name.rfind(".safetensors"));
        if (name.substr(0, 6) == "state/") { name = name.substr(6); }
        const std::size_t part = name.rfind("-of-");
        return std::string(part == std::string_view::npos || part < 6 ? name : name.substr(0, part - 6));
    }
    void add(OpenFile&& file, const std::string& kind, const Manifest::File* expected) {
        files_.push_back(std::move(file));
        kinds_.push_back(kind);
        const std::string& path = files_.back().path();
        const safetensors::Header header =
            read_header(files_.back(), expected == nullptr ? nullptr : &expected->header_crc32c, where_);
        if (expected != nullptr && expected->tensors.size() != header.tensors.size()) {
            throw FileError(
                path, concat("has ", header.tensors.size(), " tensors, the manifest ", expected->tensors.size()),
                where_);
        }
        if (expected == nullptr) { strings_.insert(strings_.end(), header.metadata.begin(), header.metadata.end()); }
        // Tensors of no bytes may stand in another order than they were written in.
        std::map<std::string_view, std::uint32_t> digests;
        if (expected != nullptr) {
            for (const Manifest::Tensor& tensor : expected->tensors) { digests.emplace(tensor.name, tensor.crc32c); }
        }
        for (const safetensors::Tensor& tensor : header.tensors) {
            const auto digest = digests.find(tensor.name);
            if (expected != nullptr && digest == digests.end()) {
                throw FileError(path, concat("tensor '", tensor.name, "' is not in the manifest"), where_);
            }
            if (!known_.emplace(std::pair(kind, tensor.name), tensors_.size()).second) {
                throw FileError(path, concat("tensor '", tensor.name, "' is in another file too"), where_);
            }
            tensors_.push_back({tensor, files_.size() - 1, header.data_begin + tensor.bytes.begin,
                                expected != nullptr ? digest->second : 0});
        }
    }
    /// The files that an index names, each once.
    std::vector<std::string> indexed(const std::string& path) {
        const std::string text = read_file(*calls_, path, safetensors::max_header_bytes, where_);
        std::vector<std::string> names;
        try {
            JsonReader json(text);
            json.object([&](const std::string& key, std::size_t) {
                if (key == "weight_map") {
                    json.object([&](const std::string& tensor, std::size_t at) {
                        const std::string name = json.string();
                        if (!stays_inside(name) || name.find('/') != std::string::npos) {
                            JsonReader::fail_at(at, concat("'", safetensors::detail::shown(tensor),
                                                           "' in a file outside of the folder"));
                        }
                        if (!index_.emplace(tensor, name).second) { JsonReader::fail_at(at, "a tensor twice"); }
                        names.push_back(name);
                    });
                } else {
                    json.skip_value();
                }
            });
            json.end();
        } catch (const JsonError& error) {
            throw FileError(path, concat("no valid index: byte ", error.at, ": ", error.what), where_);
        }
        std::sort(names.begin(), names.end());
        names.erase(std::unique(names.begin(), names.end()), names.end());
        return names;
    }
    /// That each tensor is where the index says.
    void check_index() const {
        for (const auto& [tensor, name] : index_) {
            const auto found = known_.find(std::pair(std::string("model"), tensor));
            const std::string* const path =
                found == known_.end() ? nullptr : &files_[tensors_[found->second].file].path();
            if (path == nullptr || path->substr(path->rfind('/') + 1) != name) {
                throw FileError(
                    name, concat("lacks '", safetensors::detail::shown(tensor), "', which the index says it has"),
                    where_);
            }
        }
    }

    FileCalls* calls_;
    SourceLocation where_;
    std::vector<OpenFile> files_;
    std::vector<std::string> kinds_;  // of each file
    std::vector<Stored> tensors_;
    std::map<std::pair<std::string, std::string>, std::size_t> known_;
    std::map<std::string, std::string> index_;
    std::uint64_t step_ = 0;
    std::vector<std::pair<std::string, std::string>> strings_;
    bool verified_ = false;
};

}  // namespace shardkit::detail
