#include "baton/model/parse.h"

#include <algorithm>

#include "baton/model/huggingface.h"
#include "baton/model/onnx.h"
#include "baton/model/zoo.h"

namespace baton::model {

Model parse_model(const ModelName& name) {
  if (const std::optional<ModelPath> path = path_of(name)) {
    return path->onnx ? read_onnx(path->path) : parse_model(read_model_folder(path->path, path->settings).model);
  }
  const ModelName recipe = recipe_of(name);
  const auto family = std::find_if(zoo().begin(), zoo().end(), [&](const Family& one) { return one.name == recipe.kind(); });
  return family->parse(recipe.settings());
}

}  // namespace baton::model
