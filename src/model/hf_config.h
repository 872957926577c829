// Hugging Face's config.json of a Gemma 2, read and written.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "model/gemma2_config.h"

namespace g2::model {

struct ParsedConfig {
  Gemma2Config config;
  std::vector<std::string> warnings;  // one line each, "path: key: ..."
};

// Reads the text of a config.json; `where` names it in messages. Missing keys take the class
// defaults of transformers, as they do there. A value that changes the mathematics and is not
// supported is a DataError "where: key: found, expected, what to do". The result has no
// first_problem().
ParsedConfig parse_hf_config(std::string_view text, const std::string& where);

// The same for a file, or for a folder that holds config.json. Throws IoError when it cannot be
// read.
ParsedConfig read_hf_config(const std::filesystem::path& path);

// Text that every transformers version with Gemma 2 reads to the same model; `dtype` is the
// tensors' type in transformers' spelling ("float32", "bfloat16"). parse_hf_config gives `config`
// back.
std::string to_hf_config(const Gemma2Config& config, std::string_view dtype);

}  // namespace g2::model
