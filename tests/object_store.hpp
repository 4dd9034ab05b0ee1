// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include <shardkit/checkpoint/file_calls.hpp>

namespace object_store {

/// A store of objects in memory, as those of clouds are: names with slashes, no folders, no rename.
class Objects : public shardkit::checkpoint::FileCalls {
  public:
    int make_folder(const std::string& path) override { return put(path + "/"); }
    int create_file(const std::string& path) override { return put(path); }
    int open_to_write(const std::string& path, int& file) override {
        const std::lock_guard lock(mutex_);
        const auto found = objects_.find(path);
        if (found == objects_.end()) { return ENOENT; }
        open_.push_back(&found->second);
        file = static_cast<int>(open_.size()) - 1;
        return 0;
    }
    int open_to_read(const std::string& path, int& file, std::uint64_t& bytes) override {
        if (const int error = open_to_write(path, file); error != 0) { return error; }
        bytes = open_[static_cast<std::size_t>(file)]->size();
        return 0;
    }
    int reserve(int file, std::uint64_t bytes) override { return grow(file, bytes); }
    int write(int file, std::uint64_t at, std::span<const std::byte> bytes, std::size_t& written) override {
        grow(file, at + bytes.size());
        const std::lock_guard lock(mutex_);
        std::memcpy(open_[static_cast<std::size_t>(file)]->data() + at, bytes.data(), bytes.size());
        written = bytes.size();
        return 0;
    }
    int read(int file, std::uint64_t at, std::span<std::byte> bytes, std::size_t& count) override {
        const std::lock_guard lock(mutex_);
        const std::string& object = *open_[static_cast<std::size_t>(file)];
        count = at < object.size() ? std::min(bytes.size(), object.size() - static_cast<std::size_t>(at)) : 0;
        std::memcpy(bytes.data(), object.data() + at, count);
        return 0;
    }
    int sync(int) override { return 0; }  // a store that keeps what it has taken
    int close(int) override { return 0; }
    int sync_folder(const std::string&) override { return 0; }
    int list(const std::string& path, std::vector<std::string>& names) override {
        const std::lock_guard lock(mutex_);
        if (!objects_.contains(path + "/")) { return ENOENT; }
        for (const auto& [key, bytes] : objects_) {
            if (!key.starts_with(path + "/") || key.size() == path.size() + 1) { continue; }
            const std::string rest = key.substr(path.size() + 1);
            const std::string name = rest.substr(0, rest.find('/'));
            if (names.empty() || names.back() != name) { names.push_back(name); }
        }
        return 0;
    }
    int rename(const std::string& from, const std::string& to) override {
        const std::lock_guard lock(mutex_);
        if (objects_.contains(to + "/")) { return EEXIST; }
        for (const bool manifest : {false, true}) {
            for (const auto& [key, bytes] : std::map(objects_)) {
                if (!key.starts_with(from + "/") || key.ends_with("manifest.json") != manifest) { continue; }
                objects_[to + key.substr(from.size())] = bytes;
            }
        }
        std::erase_if(objects_, [&](const auto& each) { return each.first.starts_with(from + "/"); });
        return 0;
    }
    int exchange(const std::string&, const std::string&) override { return ENOTSUP; }  // two renames then
    int remove_file(const std::string& path) override {
        const int error = remove(path);
        return error != 0 && remove(path + "/", false) == 0 ? EISDIR : error;
    }
    int remove_folder(const std::string& path) override { return remove(path + "/"); }
    // Of this job alone: others must save into folders of their own.
    int lock(const std::string& path, int& held) override {
        const std::lock_guard lock(mutex_);
        if (std::ranges::find(locked_, path) != locked_.end()) { return EWOULDBLOCK; }
        held = static_cast<int>(locked_.size());
        locked_.push_back(path);
        return 0;
    }
    void unlock(int held) override {
        const std::lock_guard lock(mutex_);
        locked_[static_cast<std::size_t>(held)].clear();
    }

  private:
    int put(const std::string& key) {
        const std::lock_guard lock(mutex_);
        return objects_.try_emplace(key).second ? 0 : EEXIST;
    }
    int remove(const std::string& key, bool removes = true) {
        const std::lock_guard lock(mutex_);
        if (!objects_.contains(key)) { return ENOENT; }
        if (removes) { objects_.erase(key); }
        return 0;
    }
    int grow(int file, std::uint64_t bytes) {
        const std::lock_guard lock(mutex_);
        std::string& object = *open_[static_cast<std::size_t>(file)];
        if (object.size() < bytes) { object.resize(static_cast<std::size_t>(bytes)); }
        return 0;
    }

    std::mutex mutex_;
    std::map<std::string, std::string> objects_;
    std::vector<std::string*> open_;
    std::vector<std::string> locked_;
};

}  // namespace object_store
